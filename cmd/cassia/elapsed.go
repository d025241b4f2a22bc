package main

import "time"

// processStart is when this process began, or a little later.
var processStart = time.Now()
