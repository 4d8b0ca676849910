// The program runs the transparency log Tessera (github.com/transparency-dev/tessera) on a POSIX
// file system, for comparison with Moteseal (make bench-peers). It appends the entries of a file
// durably, reads them back, verifies them against the log's signed checkpoint, and reports the
// wall-clock time of each step. The Rust program peers/src/tessera.rs controls it over its standard
// input and output, and determines what is compared.
//
//	moteseal-peer-tessera drive       reads commands from stdin, one line of JSON each; writes an answer to stdout for each
//
//	moteseal-peer-tessera serve ROOT BATCH MILLISECONDS
//	                                  serves over HTTP: appends to the log ROOT/http (POST /add), and the files of all logs under ROOT (GET)
package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"k8s.io/klog/v2"
)

// A command, which is one line of JSON. Do determines which other fields are used.
type command struct {
	// "append", "post" or "read".
	Do string `json:"do"`
	// The folder of the log, for "append" and, without a URL, for "read".
	Log string `json:"log"`
	// The URL of the log with a slash at its end, for "post" and "read".
	URL string `json:"url"`
	// The public key of the log as "append" returned it, for "read".
	Key string `json:"key"`
	// The file with the entries to append. Each entry is preceded by its length (four bytes,
	// big-endian).
	Entries string `json:"entries"`
	// The maximum number of entries that are sequenced together, and the time that an entry waits for
	// others.
	Batch   uint `json:"batch"`
	BatchMS uint `json:"batch_ms"`
	// For "post", the number of concurrent requests. For "read", the number of files that are fetched
	// and hashed concurrently.
	Workers int `json:"workers"`
	// How to read: "all", "proofs" or "clumps".
	How string `json:"how"`
	// For "proofs", the entries whose index is a multiple of this number are proven. For "clumps", the
	// bundles of 256 entries whose index is a multiple of this number are read.
	Every uint64 `json:"every"`
	// For "proofs", the number of entries, from the first one on, among which entries are selected: a
	// multiple of 256.
	Limit uint64 `json:"limit"`
}

// The result of a command.
type answer struct {
	Nanoseconds int64 `json:"nanoseconds"`
	// The number of entries that were appended or verified.
	Entries uint64 `json:"entries"`
	// The sum of the bytes of all verified entries. Computing it requires every byte to be read. The
	// caller compares it with the expected sum.
	Sum uint64 `json:"sum"`
	// The number of bytes that were fetched.
	Bytes uint64 `json:"bytes"`
	// The public key of the log to which entries were appended.
	Key   string `json:"key,omitempty"`
	Error string `json:"error,omitempty"`
}

func main() {
	// Discard Tessera's log messages, because writing them would be part of the measurement.
	klogFlags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(klogFlags)
	if err := klogFlags.Parse([]string{"-logtostderr=false", "-stderrthreshold=ERROR"}); err != nil {
		fail(err)
	}
	klog.SetOutput(io.Discard)
	ctx := context.Background()
	switch {
	case len(os.Args) == 2 && os.Args[1] == "drive":
		if err := drive(ctx, os.Stdin, os.Stdout); err != nil {
			fail(err)
		}
	case len(os.Args) == 5 && os.Args[1] == "serve":
		if err := serve(ctx, os.Args[2], os.Args[3], os.Args[4]); err != nil {
			fail(err)
		}
	default:
		fmt.Fprintln(os.Stderr, "usage: moteseal-peer-tessera drive | serve ROOT BATCH MILLISECONDS")
		os.Exit(2)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "moteseal-peer-tessera:", err)
	os.Exit(1)
}

// drive executes commands until stdin is closed.
func drive(ctx context.Context, in io.Reader, out io.Writer) error {
	logs := map[string]*appendLog{}
	lines, encoder := bufio.NewScanner(in), json.NewEncoder(out)
	for lines.Scan() {
		var c command
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			return fmt.Errorf("invalid command: %w", err)
		}
		a, err := obey(ctx, logs, c)
		if err != nil {
			a.Error = err.Error()
		}
		if err := encoder.Encode(a); err != nil {
			return err
		}
	}
	for _, log := range logs {
		if err := log.close(ctx); err != nil {
			return err
		}
	}
	return lines.Err()
}

func obey(ctx context.Context, logs map[string]*appendLog, c command) (answer, error) {
	switch c.Do {
	case "append":
		log := logs[c.Log]
		if log == nil {
			var err error
			if log, err = openLog(ctx, c.Log, c.Batch, time.Duration(c.BatchMS)*time.Millisecond); err != nil {
				return answer{}, err
			}
			logs[c.Log] = log
		}
		entries, err := readEntries(c.Entries)
		if err != nil {
			return answer{}, err
		}
		return log.append(ctx, entries)
	case "post":
		entries, err := readEntries(c.Entries)
		if err != nil {
			return answer{}, err
		}
		return post(ctx, c.URL, entries, c.Workers)
	case "read":
		return read(ctx, c)
	}
	return answer{}, fmt.Errorf("unknown command %q", c.Do)
}

// readEntries reads the entries of a file. Each entry is preceded by its length in four bytes.
func readEntries(path string) ([][]byte, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var entries [][]byte
	for len(content) > 0 {
		if len(content) < 4 {
			return nil, errors.New("the file of entries ends within a length")
		}
		length := int(content[0])<<24 | int(content[1])<<16 | int(content[2])<<8 | int(content[3])
		if len(content)-4 < length {
			return nil, errors.New("the file of entries ends within an entry")
		}
		entries = append(entries, content[4:4+length])
		content = content[4+length:]
	}
	return entries, nil
}

// randomName returns a unique name for a log's key.
func randomName() string {
	return "moteseal.example/peer/" + rand.Text()
}
