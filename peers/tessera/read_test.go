package main

import (
	"context"
	"encoding/binary"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Two full bundles of 256 entries, and a partial third one.
const entries = 600

// aLog appends entries to a new log. It returns the log's folder and key, and the sum of all bytes.
func aLog(t *testing.T) (string, string, uint64) {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "log")
	log, err := openLog(context.Background(), folder, entries, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	var all [][]byte
	var sum tally
	for at := range uint32(entries) {
		all = append(all, binary.BigEndian.AppendUint32(nil, at*2654435761))
		sum.look(all[at])
	}
	appended, err := log.append(context.Background(), all)
	if err != nil {
		t.Fatal(err)
	}
	if err := log.close(context.Background()); err != nil {
		t.Fatal(err)
	}
	return folder, appended.Key, sum.sum
}

func ways(folder, url, key string) map[string]command {
	base := command{Do: "read", Log: folder, URL: url, Key: key, Workers: 2, Limit: 1024}
	ways := map[string]command{}
	for how, every := range map[string]uint64{"all": 1, "clumps": 2, "proofs": 8} {
		way := base
		way.How, way.Every = how, every
		ways[how] = way
	}
	return ways
}

func TestEveryReadModeVerifiesTheAppendedEntries(t *testing.T) {
	folder, key, sum := aLog(t)
	server := httptest.NewServer(http.FileServer(http.Dir(folder)))
	defer server.Close()
	// The clumps are the first bundle and the third bundle, which is not full.
	expected := map[string]uint64{"all": entries, "clumps": 256 + 88, "proofs": entries / 8}
	for _, url := range []string{"", server.URL + "/"} {
		for how, way := range ways(folder, url, key) {
			got, err := read(context.Background(), way)
			if err != nil {
				t.Errorf("%s from %q: %v", how, url, err)
			}
			if got.Entries != expected[how] || how == "all" && got.Sum != sum {
				t.Errorf("%s from %q: %d entries of sum %d", how, url, got.Entries, got.Sum)
			}
		}
	}
}

func TestEveryReadModeRejectsAChangedEntry(t *testing.T) {
	folder, key, _ := aLog(t)
	// Change the first byte of the first entry, which follows the entry's length in the first bundle.
	path := filepath.Join(folder, "tile", "entries", "000")
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	content[2] ^= 1
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	for how, way := range ways(folder, "", key) {
		if got, err := read(context.Background(), way); err == nil {
			t.Errorf("%s accepts it: %d entries", how, got.Entries)
		}
	}
}

func TestEveryReadModeRejectsTheCheckpointOfAnotherLog(t *testing.T) {
	folder, _, _ := aLog(t)
	_, other, _ := aLog(t)
	for how, way := range ways(folder, "", other) {
		if _, err := read(context.Background(), way); err == nil {
			t.Errorf("%s accepts it", how)
		}
	}
}
