"""What was done, written down for the next run, the operator and the sensor."""
