"""One-file pages in Debian's Chromium, headless, over its DevTools protocol."""
