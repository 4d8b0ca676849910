// A transparency log, Tessera (github.com/transparency-dev/tessera) on a POSIX file system, driven as a peer to compare Moteseal
// with (make bench-peers). It appends entries that a file holds, durably, and reads them back verified against the log's signed
// checkpoint; it says how long each took by the clock on the wall. It decides nothing about what is compared: that is
// peers/src/tessera.rs, which talks to it over its standard input and output.
//
//	moteseal-peer-tessera drive       commands on stdin, a line of JSON each; an answer on stdout for each
//
//	moteseal-peer-tessera serve ROOT BATCH MILLISECONDS
//	                                  a log ROOT/http behind HTTP (POST /add), and the files of all logs under ROOT (GET)
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

// A command of one line. Which fields count depends on Do.
type command struct {
	// "append", "post" or "read".
	Do string `json:"do"`
	// The folder of the log: of "append" and, without an URL, of "read".
	Log string `json:"log"`
	// Where the log is served, with a slash at its end: of "post" and "read".
	URL string `json:"url"`
	// The public key of the log, as "append" said it: of "read".
	Key string `json:"key"`
	// The file whose content is appended: entries, each behind its length (four bytes, big-endian).
	Entries string `json:"entries"`
	// Entries that are sequenced together at most, and how long an entry waits for others.
	Batch   uint `json:"batch"`
	BatchMS uint `json:"batch_ms"`
	// Requests at a time: of "post"; files that are fetched and hashed side by side: of "read".
	Workers int `json:"workers"`
	// How to read: "all", "proofs" or "clumps".
	How string `json:"how"`
	// Which entries "proofs" proves, and which bundles of 256 entries "clumps" reads: those whose index this divides.
	Every uint64 `json:"every"`
	// Of how many entries, from the first on, "proofs" proves some: a multiple of 256.
	Limit uint64 `json:"limit"`
}

// What became of a command.
type answer struct {
	Nanoseconds int64 `json:"nanoseconds"`
	// Entries that were appended or verified.
	Entries uint64 `json:"entries"`
	// The sum of the bytes of all entries that were verified, so that they are looked at, and are what was expected.
	Sum uint64 `json:"sum"`
	// Bytes that were fetched.
	Bytes uint64 `json:"bytes"`
	// The public key of the log that was appended to.
	Key   string `json:"key,omitempty"`
	Error string `json:"error,omitempty"`
}

func main() {
	// Tessera's log lines would be measured, too.
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

// drive answers commands until there are no more.
func drive(ctx context.Context, in io.Reader, out io.Writer) error {
	logs := map[string]*appendLog{}
	lines, encoder := bufio.NewScanner(in), json.NewEncoder(out)
	for lines.Scan() {
		var c command
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			return fmt.Errorf("a command that is none: %w", err)
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

// readEntries reads the entries of a file, each behind its length in four bytes.
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

// randomName is a name for a log's key that no other log has.
func randomName() string {
	return "moteseal.example/peer/" + rand.Text()
}
