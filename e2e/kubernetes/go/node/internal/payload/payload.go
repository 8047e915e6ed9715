// Package payload is e2e/harness/payload.ts (seed 0) in Go: endless bytes that both ends can compute.
package payload

import (
	"bytes"
	"io"
)

// Odd length: a chunk that is lost, doubled or out of order never lands on the same bytes again.
const poolBytes = 1_048_573

var pool = makePool()

func makePool() []byte {
	bytes := make([]byte, poolBytes)
	state := uint32(0x9e3779b9)
	for i := range bytes {
		// xorshift32: the same bytes in every process.
		state ^= state << 13
		state ^= state >> 17
		state ^= state << 5
		bytes[i] = byte(state)
	}
	return bytes
}

// Write writes the first length bytes of the payload.
func Write(w io.Writer, length int64) error {
	for length > 0 {
		part := pool[:min(length, poolBytes)]
		if _, err := w.Write(part); err != nil {
			return err
		}
		length -= int64(len(part))
	}
	return nil
}

// Check is a Writer that compares what arrives with the payload: a digest would cost more than the transfer that is
// measured.
type Check struct {
	Bytes int64
	// Wrong is true as soon as something arrived that was not sent there.
	Wrong bool
}

func (c *Check) Write(chunk []byte) (int, error) {
	for rest := chunk; len(rest) > 0; {
		expected := pool[c.Bytes%poolBytes:]
		length := min(len(rest), len(expected))
		c.Wrong = c.Wrong || !bytes.Equal(rest[:length], expected[:length])
		c.Bytes += int64(length)
		rest = rest[length:]
	}
	return len(chunk), nil
}
