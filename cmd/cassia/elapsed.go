package main

import "time"

// processStart is approximately the time at which this process started.
var processStart = time.Now()
