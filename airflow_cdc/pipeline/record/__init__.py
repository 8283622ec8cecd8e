"""Records of what was done, for the next run, the operator and the sensor."""
