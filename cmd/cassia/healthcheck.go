package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/alecthomas/kingpin/v2"
)

// healthcheckAnswer is the max number of bytes of a response that are quoted in an error.
const healthcheckAnswer = 256

// addHealthcheck declares the command for health checks inside containers without another HTTP client.
func addHealthcheck(app *kingpin.Application) subcommand {
	cmd := app.Command("healthcheck", "Check whether a server responds. Exits with status 1 if it doesn't.")
	at := cmd.Flag("url", "URL of the server.").Default("http://localhost:9201").String()
	ready := cmd.Flag(
		"ready",
		"Also check that the server is ready for queries. After a start, it accepts writes before it is ready for "+
			"queries.",
	).Bool()
	timeout := cmd.Flag("timeout", "How long to wait for the response.").Default("5s").Duration()
	login := httpConfigFlag(cmd)
	return subcommand{cmd.FullCommand(), func(ctx context.Context) error {
		client, err := login.newClient(*at)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, *timeout)
		defer cancel()
		paths := []string{"/-/healthy"}
		if *ready {
			paths = append(paths, "/-/ready")
		}
		for _, path := range paths {
			if err := checkOK(ctx, client, strings.TrimRight(*at, "/")+path); err != nil {
				return err
			}
		}
		return nil
	}}
}

// checkOK returns an error if a URL doesn't return status 200.
func checkOK(ctx context.Context, client *http.Client, at string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(request)
	if err != nil {
		return err // The error names the URL without its password.
	}
	defer answer.Body.Close()
	if answer.StatusCode == http.StatusOK {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, healthcheckAnswer))
	if err != nil {
		text = nil // The body can't be read.
	}
	return fmt.Errorf("%s: %s: %s", withoutUser(at), answer.Status, strings.Join(strings.Fields(string(text)), " "))
}
