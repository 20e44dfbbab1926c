"""Jobs on engines elsewhere: found again, looked at, followed and cancelled."""
