package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
)

// newClient returns a client that keeps up to the given number of connections open.
func newClient(connections int) *http.Client {
	return &http.Client{Transport: &http.Transport{
		MaxIdleConnsPerHost: connections,
		MaxConnsPerHost:     connections,
		DisableCompression:  true,
	}}
}

func postOne(ctx context.Context, client *http.Client, url string, entry []byte) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(entry))
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(response.Body)
	if closed := response.Body.Close(); err == nil {
		err = closed
	}
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("the log rejects an entry: %s: %s", response.Status, body)
	}
	return err
}
