"""Every small damage to small datasets: is it named, and is no wrong value delivered?"""
