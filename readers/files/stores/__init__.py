"""Object stores, where a file appears whole or not at all."""
