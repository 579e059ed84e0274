package main

import (
	"bytes"
	"fmt"
	"strconv"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/protobuf/proto"
)

// Each message's data begins with its sequence number in this many digits. Twelve bytes are sixteen in base64 with no
// padding, so a push envelope can be read without decoding the whole.
const sequenceDigits = 12

// batch is an encoded PublishRequest in which the sequence numbers can be overwritten. Not for use by two callers.
type batch struct {
	encoded []byte
	offsets []int
}

func newBatch(topic string, messages, size int) (*batch, error) {
	request := &pubsubpb.PublishRequest{Topic: topic}
	for i := range messages {
		request.Messages = append(request.Messages, &pubsubpb.PubsubMessage{
			Data:       newData(i, size),
			Attributes: map[string]string{"type": "order.created", "source": "bench/load"},
		})
	}
	encoded, err := proto.Marshal(request)
	if err != nil {
		return nil, err
	}
	b := &batch{encoded: encoded}
	return b, b.locate(messages, size)
}

func newData(sequence, size int) []byte {
	data := bytes.Repeat([]byte{'x'}, size)
	writeSequence(data, sequence)
	return data
}

// locate finds where each message's data begins. The search goes forward, so a chance match inside an earlier
// message cannot be taken for a later one.
func (b *batch) locate(messages, size int) error {
	from := 0
	for i := range messages {
		data := newData(i, size)
		at := bytes.Index(b.encoded[from:], data)
		if at < 0 {
			return fmt.Errorf("message %d is not in its own request", i)
		}
		b.offsets = append(b.offsets, from+at)
		from += at + size
	}
	return nil
}

// number gives the messages the sequence numbers first, first+1, and so on.
func (b *batch) number(first int) {
	for i, offset := range b.offsets {
		writeSequence(b.encoded[offset:], first+i)
	}
}

func writeSequence(to []byte, sequence int) {
	for i := sequenceDigits - 1; i >= 0; i-- {
		to[i] = byte('0' + sequence%10)
		sequence /= 10
	}
}

func readSequence(data []byte) (int, error) {
	if len(data) < sequenceDigits {
		return 0, fmt.Errorf("a message has only %d bytes of data", len(data))
	}
	return strconv.Atoi(string(data[:sequenceDigits]))
}

// seen marks which sequence numbers arrived, so that a redelivery is not counted as progress.
type seen struct {
	marks      []bool
	distinct   int
	duplicates int
}

func newSeen(messages int) *seen {
	return &seen{marks: make([]bool, messages)}
}

func (s *seen) mark(sequence int) error {
	if sequence < 0 || sequence >= len(s.marks) {
		return fmt.Errorf("sequence %d was never sent", sequence)
	}
	if s.marks[sequence] {
		s.duplicates++
		return nil
	}
	s.marks[sequence] = true
	s.distinct++
	return nil
}

func (s *seen) all() bool {
	return s.distinct == len(s.marks)
}
