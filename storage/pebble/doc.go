// Package pebble keeps wide rows in Pebble, an LSM tree within the process.
package pebble
