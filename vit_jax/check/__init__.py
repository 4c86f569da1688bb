"""Dataset checks: unreadable images, duplicates, suspicious labels."""
