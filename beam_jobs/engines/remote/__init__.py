"""Jobs on other engines: followed, found again, and cancelled on Flink."""
