package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/transparency-dev/tessera"
	"github.com/transparency-dev/tessera/storage/posix"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/sync/errgroup"
)

// The interval of checkpoints: the minimum that the storage permits. Appending does not wait for
// checkpoints.
const checkpointInterval = 100 * time.Millisecond

// An appendLog is a log that only this process writes to.
type appendLog struct {
	appender *tessera.Appender
	reader   tessera.LogReader
	shutdown func(context.Context) error
	key      string
}

// openLog creates a log in a new folder. Entries wait until batch of them have arrived or until
// wait has passed. They are then sequenced and integrated together. The log has no antispam, which
// would cost lookups, and no witness and no mirror.
func openLog(ctx context.Context, folder string, batch uint, wait time.Duration) (*appendLog, error) {
	secret, public, err := note.GenerateKey(rand.Reader, randomName())
	if err != nil {
		return nil, err
	}
	signer, err := note.NewSigner(secret)
	if err != nil {
		return nil, err
	}
	driver, err := posix.New(ctx, posix.Config{Path: folder})
	if err != nil {
		return nil, err
	}
	options := tessera.NewAppendOptions().
		WithCheckpointSigner(signer).
		WithCheckpointInterval(checkpointInterval).
		WithBatching(batch, wait)
	appender, shutdown, reader, err := tessera.NewAppender(ctx, driver, options)
	if err != nil {
		return nil, err
	}
	return &appendLog{appender, reader, shutdown, public}, nil
}

// append adds all entries and waits until each has its index. At that point Tessera guarantees that
// the entry is durable (AddFn: "durably sequenced and will be preserved even in the event that the
// process terminates"). On POSIX it is then also integrated. The measured time ends at that point.
// Afterwards append waits for a checkpoint that commits to all entries.
func (l *appendLog) append(ctx context.Context, entries [][]byte) (answer, error) {
	futures := make([]tessera.IndexFuture, 0, len(entries))
	start := time.Now()
	for _, entry := range entries {
		futures = append(futures, l.appender.Add(ctx, tessera.NewEntry(entry)))
	}
	for _, future := range futures {
		if _, err := future(); err != nil {
			return answer{}, err
		}
	}
	took := time.Since(start)
	bounded, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	awaiter := tessera.NewPublicationAwaiter(bounded, l.reader.ReadCheckpoint, 10*time.Millisecond)
	if _, _, err := awaiter.Await(bounded, futures[len(futures)-1]); err != nil {
		return answer{}, fmt.Errorf("no checkpoint covers the appended entries: %w", err)
	}
	return answer{Nanoseconds: took.Nanoseconds(), Entries: uint64(len(entries)), Key: l.key}, nil
}

func (l *appendLog) close(ctx context.Context) error {
	return l.shutdown(ctx)
}

// serve runs a log over HTTP until stdin is closed, like Tessera's example for POSIX
// (cmd/conformance/posix). It answers a POST with the index of the entry when the entry is durable.
// It prints its address on stdout.
func serve(ctx context.Context, root, batch, milliseconds string) error {
	size, err := strconv.ParseUint(batch, 10, 32)
	if err != nil {
		return err
	}
	wait, err := strconv.ParseUint(milliseconds, 10, 32)
	if err != nil {
		return err
	}
	log, err := openLog(ctx, root+"/http", uint(size), time.Duration(wait)*time.Millisecond)
	if err != nil {
		return err
	}
	routes := http.NewServeMux()
	routes.HandleFunc("POST /add", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		index, err := log.appender.Add(r.Context(), tessera.NewEntry(body))()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_, _ = fmt.Fprintf(w, "%d", index.Index)
	})
	routes.Handle("GET /", http.FileServer(http.Dir(root)))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: routes, ReadHeaderTimeout: 5 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	fmt.Println(listener.Addr())
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	if err := server.Close(); err != nil {
		return err
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return log.close(ctx)
}

// post sends each entry in a separate request. Each of the given number of workers has its own
// connection.
func post(ctx context.Context, url string, entries [][]byte, workers int) (answer, error) {
	client := newClient(workers)
	var next atomic.Int64
	var group errgroup.Group
	start := time.Now()
	for range workers {
		group.Go(func() error {
			for {
				at := int(next.Add(1)) - 1
				if at >= len(entries) {
					return nil
				}
				if err := postOne(ctx, client, url, entries[at]); err != nil {
					return err
				}
			}
		})
	}
	err := group.Wait()
	took := time.Since(start)
	client.CloseIdleConnections()
	return answer{Nanoseconds: took.Nanoseconds(), Entries: uint64(len(entries))}, err
}
