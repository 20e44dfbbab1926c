"""One-file pages in Debian's Chromium and Firefox, headless, over WebDriver BiDi.

Both browsers answer to this protocol of W3C, Chromium through Debian's chromedriver, Firefox by itself, so that
one client of a hundred lines drives both. Debian 12 has no geckodriver, which Selenium needs, and Playwright's
Firefox is another one than users have.
"""
