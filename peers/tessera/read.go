package main

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/transparency-dev/merkle/compact"
	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
	"github.com/transparency-dev/tessera/api"
	"github.com/transparency-dev/tessera/api/layout"
	"github.com/transparency-dev/tessera/client"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/sync/errgroup"
)

// A source reads the files of a log.
type source struct {
	checkpoint client.CheckpointFetcherFunc
	tile       client.TileFetcherFunc
	bundle     client.EntryBundleFetcherFunc
	// The number of concurrent fetches.
	workers int
	bytes   atomic.Uint64
}

// openSource opens a source with Tessera's own fetchers: over HTTP if the command has a URL, and
// otherwise from files.
func openSource(c command) (*source, error) {
	s := &source{workers: c.Workers}
	if c.URL == "" {
		files := client.FileFetcher{Root: c.Log}
		s.checkpoint, s.tile, s.bundle = files.ReadCheckpoint, files.ReadTile, files.ReadEntryBundle
	} else {
		root, err := url.Parse(c.URL)
		if err != nil {
			return nil, err
		}
		fetcher, err := client.NewHTTPFetcher(root, newClient(c.Workers))
		if err != nil {
			return nil, err
		}
		s.checkpoint, s.tile, s.bundle = fetcher.ReadCheckpoint, fetcher.ReadTile, fetcher.ReadEntryBundle
	}
	tile, bundle := s.tile, s.bundle
	s.tile = func(ctx context.Context, level, index uint64, partial uint8) ([]byte, error) {
		content, err := tile(ctx, level, index, partial)
		s.bytes.Add(uint64(len(content)))
		return content, err
	}
	s.bundle = func(ctx context.Context, index uint64, partial uint8) ([]byte, error) {
		content, err := bundle(ctx, index, partial)
		s.bytes.Add(uint64(len(content)))
		return content, err
	}
	return s, nil
}

// A tally counts the verified entries and adds up their bytes.
type tally struct {
	entries, sum uint64
}

func (t *tally) look(entry []byte) {
	t.entries++
	for _, value := range entry {
		t.sum += uint64(value)
	}
}

func sum(tallies []tally) tally {
	var all tally
	for _, t := range tallies {
		all.entries += t.entries
		all.sum += t.sum
	}
	return all
}

// read reads the entries to which the log's newest checkpoint commits, and verifies them against
// this checkpoint.
func read(ctx context.Context, c command) (answer, error) {
	verifier, err := note.NewVerifier(c.Key)
	if err != nil {
		return answer{}, err
	}
	s, err := openSource(c)
	if err != nil {
		return answer{}, err
	}
	start := time.Now()
	checkpoint, _, _, err := client.FetchCheckpoint(ctx, s.checkpoint, verifier, verifier.Name())
	if err != nil {
		return answer{}, err
	}
	var seen tally
	switch c.How {
	case "all":
		seen, err = s.rebuild(ctx, checkpoint.Size, checkpoint.Hash, 1)
	case "clumps":
		seen, err = s.rebuild(ctx, checkpoint.Size, checkpoint.Hash, c.Every)
	case "proofs":
		seen, err = s.prove(ctx, checkpoint.Size, checkpoint.Hash, c)
	default:
		err = fmt.Errorf("unknown way to read %q", c.How)
	}
	took := time.Since(start)
	return answer{Nanoseconds: took.Nanoseconds(), Entries: seen.entries, Sum: seen.sum, Bytes: s.bytes.Load()}, err
}

// rebuild reads the bundles of 256 entries whose index is a multiple of every (1 for all bundles),
// and the last bundle if it is not full. It hashes their entries and compares the root of the tree
// with the checkpoint's root. It reads the hashes of the other bundles from the tiles above them.
// Bundles are fetched and hashed concurrently.
func (s *source) rebuild(ctx context.Context, size uint64, root []byte, every uint64) (tally, error) {
	full := size / layout.EntryBundleWidth
	bundles := (size + layout.EntryBundleWidth - 1) / layout.EntryBundleWidth
	nodes := make([][]byte, full)
	var right [][]byte
	if every > 1 {
		if err := s.above(ctx, size, nodes); err != nil {
			return tally{}, err
		}
	}
	var (
		next  atomic.Uint64
		group errgroup.Group
	)
	tallies := make([]tally, s.workers)
	for worker := range s.workers {
		group.Go(func() error {
			for {
				at := (next.Add(1) - 1) * every
				if at >= bundles {
					return nil
				}
				if err := s.hashBundle(ctx, at, size, nodes, &right, &tallies[worker], every > 1); err != nil {
					return err
				}
			}
		})
	}
	if err := group.Wait(); err != nil {
		return tally{}, err
	}
	seen := sum(tallies)
	if bundles > full && right == nil {
		if err := s.hashBundle(ctx, full, size, nodes, &right, &seen, false); err != nil {
			return tally{}, err
		}
	}
	factory := compact.RangeFactory{Hash: rfc6962.DefaultHasher.HashChildren}
	whole := factory.NewEmptyRange(0)
	for _, node := range nodes {
		if err := whole.Append(node, nil); err != nil {
			return tally{}, err
		}
	}
	hashes := append(append([][]byte{}, whole.Hashes()...), right...)
	if len(hashes) == 0 {
		return tally{}, fmt.Errorf("an empty log")
	}
	computed := hashes[len(hashes)-1]
	for at := len(hashes) - 2; at >= 0; at-- {
		computed = rfc6962.DefaultHasher.HashChildren(hashes[at], computed)
	}
	if !bytes.Equal(computed, root) {
		return tally{}, fmt.Errorf("the entries do not have the checkpoint's root")
	}
	return seen, nil
}

// hashBundle reads a bundle and stores its root in nodes. If the bundle is not full, it stores the
// bundle's compact range in right instead. If nodes already has a root for the bundle, the two must
// be equal.
func (s *source) hashBundle(
	ctx context.Context, at, size uint64, nodes [][]byte, right *[][]byte, seen *tally, compare bool,
) error {
	bundle, err := client.GetEntryBundle(ctx, s.bundle, at, size)
	if err != nil {
		return err
	}
	factory := compact.RangeFactory{Hash: rfc6962.DefaultHasher.HashChildren}
	leaves := factory.NewEmptyRange(0)
	for _, entry := range bundle.Entries {
		seen.look(entry)
		if err := leaves.Append(rfc6962.DefaultHasher.HashLeaf(entry), nil); err != nil {
			return err
		}
	}
	if at == uint64(len(nodes)) {
		*right = leaves.Hashes()
		return nil
	}
	if len(bundle.Entries) != layout.EntryBundleWidth {
		return fmt.Errorf("bundle %d has %d entries", at, len(bundle.Entries))
	}
	node := leaves.Hashes()[0]
	if compare && !bytes.Equal(node, nodes[at]) {
		return fmt.Errorf("the entries of bundle %d differ from the tile", at)
	}
	nodes[at] = node
	return nil
}

// above reads the roots of all full bundles from the tiles above them.
func (s *source) above(ctx context.Context, size uint64, nodes [][]byte) error {
	for at := uint64(0); at < uint64(len(nodes)); at += layout.TileWidth {
		index := at / layout.TileWidth
		content, err := s.tile(ctx, 1, index, layout.PartialTileSize(1, index, size))
		if err != nil {
			return err
		}
		var tile api.HashTile
		if err := tile.UnmarshalText(content); err != nil {
			return err
		}
		if copied := copy(nodes[at:], tile.Nodes); copied != len(tile.Nodes) {
			return fmt.Errorf("tile %d has %d nodes too many", index, len(tile.Nodes)-copied)
		}
	}
	return nil
}

// prove verifies every entry whose index is a multiple of the command's number, up to the command's
// limit. Each entry has a separate inclusion proof that Tessera's client builds from tiles. A
// worker proves neighbouring entries, because the client caches the tiles that it has fetched.
func (s *source) prove(ctx context.Context, size uint64, root []byte, c command) (tally, error) {
	var group errgroup.Group
	tallies := make([]tally, s.workers)
	bundles := (min(size, c.Limit) + layout.EntryBundleWidth - 1) / layout.EntryBundleWidth
	share := (bundles + uint64(s.workers) - 1) / uint64(s.workers)
	for worker := range s.workers {
		group.Go(func() error {
			from, until := uint64(worker)*share, min(uint64(worker+1)*share, bundles)
			seen, err := s.proveBundles(ctx, size, root, c.Every, from, until)
			tallies[worker] = seen
			return err
		})
	}
	err := group.Wait()
	return sum(tallies), err
}

func (s *source) proveBundles(ctx context.Context, size uint64, root []byte, every, from, until uint64) (tally, error) {
	var seen tally
	builder, err := client.NewProofBuilder(ctx, size, s.tile)
	if err != nil {
		return seen, err
	}
	for at := from; at < until; at++ {
		bundle, err := client.GetEntryBundle(ctx, s.bundle, at, size)
		if err != nil {
			return seen, err
		}
		for offset, entry := range bundle.Entries {
			index := at*layout.EntryBundleWidth + uint64(offset)
			if index%every != 0 {
				continue
			}
			path, err := builder.InclusionProof(ctx, index)
			if err != nil {
				return seen, err
			}
			leaf := rfc6962.DefaultHasher.HashLeaf(entry)
			if err := proof.VerifyInclusion(rfc6962.DefaultHasher, index, size, leaf, path, root); err != nil {
				return seen, err
			}
			seen.look(entry)
		}
	}
	return seen, nil
}
