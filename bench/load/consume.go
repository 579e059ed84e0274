package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// measureConsume: system events to a consumer's push endpoint, as Pub/Sub would send them, over connections that each
// wait for their answer. It counts the events that were dealt with. An endpoint that is too busy (429) makes the
// measurement incomplete; any other answer ends it.
func measureConsume(ctx context.Context, s settings) (result, error) {
	pushers, err := connectAll(s, newEvents(s.services, time.Now()))
	defer closeAll(pushers)
	if err != nil {
		return result{}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// When one has failed, or nobody answers in time, the others need not wait for their answers.
	stop := context.AfterFunc(ctx, func() { closeAll(pushers) })
	defer stop()
	timer := startTimer(s)
	pushAll(pushers, s.messages, timer.deadline(s.limit), cancel)
	if err := context.Cause(ctx); err != nil {
		return result{}, err
	}
	var took []time.Duration
	for _, p := range pushers {
		took = append(took, p.took...)
	}
	measured := timer.result(len(took), s.messages)
	measured.P50Ms, measured.P99Ms = percentile(took, 0.50), percentile(took, 0.99)
	return measured, nil
}

func pushAll(pushers []*pusher, messages int, deadline time.Time, failed func(error)) {
	var next atomic.Int64
	var running sync.WaitGroup
	for _, p := range pushers {
		running.Go(func() {
			if err := p.pushUntil(deadline, &next, messages); err != nil {
				failed(err)
			}
		})
	}
	running.Wait()
}

// pusher is one connection and the request that it sends again and again.
type pusher struct {
	connection net.Conn
	answers    *bufio.Reader
	request    *pushRequest
	took       []time.Duration // of each event that was dealt with
}

// connectAll gives those that it could connect, also with an error.
func connectAll(s settings, events *events) ([]*pusher, error) {
	pushers := make([]*pusher, 0, s.connections)
	for range s.connections {
		connection, err := net.DialTimeout("tcp", s.target, 5*time.Second)
		if err != nil {
			return pushers, err
		}
		pushers = append(pushers, &pusher{
			connection: connection,
			answers:    bufio.NewReader(connection),
			request:    newPushRequest(s.target, events),
			took:       make([]time.Duration, 0, 2*s.messages/s.connections),
		})
	}
	return pushers, nil
}

func closeAll(pushers []*pusher) {
	for _, p := range pushers {
		_ = p.connection.Close()
	}
}

func (p *pusher) pushUntil(deadline time.Time, next *atomic.Int64, messages int) error {
	for {
		started := time.Now()
		sequence := int(next.Add(1)) - 1
		if sequence >= messages || started.After(deadline) {
			return nil
		}
		if _, err := p.connection.Write(p.request.number(sequence, started)); err != nil {
			return err
		}
		status, body, err := readAnswer(p.answers)
		if err != nil {
			return err
		}
		switch {
		case status == http.StatusOK && isDone(body):
			p.took = append(p.took, time.Since(started))
		case status != http.StatusTooManyRequests:
			return fmt.Errorf("event %d was answered %d %s", sequence, status, body)
		}
	}
}

// isDone: what came late is stale and was dealt with too; a duplicate would mean that nothing was done.
func isDone(body []byte) bool {
	return bytes.Contains(body, []byte(`"applied"`)) || bytes.Contains(body, []byte(`"stale_ignored"`))
}

// readAnswer reads one HTTP answer that has a Content-Length and fits the reader. The next call overwrites its body.
func readAnswer(from *bufio.Reader) (status int, body []byte, err error) {
	first, err := from.ReadSlice('\n')
	if err != nil {
		return 0, nil, err
	}
	if !bytes.HasPrefix(first, []byte("HTTP/1.1 ")) || len(first) < len("HTTP/1.1 200\n") {
		return 0, nil, fmt.Errorf("%q is not the first line of an HTTP/1.1 answer", first)
	}
	if status, err = strconv.Atoi(string(first[9:12])); err != nil {
		return 0, nil, err
	}
	length, err := readLength(from)
	if err != nil {
		return 0, nil, err
	}
	if body, err = from.Peek(length); err != nil {
		return 0, nil, err
	}
	_, err = from.Discard(length)
	return status, body, err
}

// readLength reads the headers to their end; gives the Content-Length.
func readLength(from *bufio.Reader) (int, error) {
	length := -1
	for {
		line, err := from.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		name, value, named := bytes.Cut(bytes.TrimRight(line, "\r\n"), []byte{':'})
		if !named {
			break
		}
		if bytes.EqualFold(name, []byte("content-length")) {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return 0, err
			}
		}
	}
	if length < 0 {
		return 0, errors.New("an answer has no Content-Length")
	}
	return length, nil
}

// events are the system events of one run: in turn of each service, every one with ids that no other run has.
type events struct {
	services int
	firstID  int
}

func newEvents(services int, started time.Time) *events {
	// Runs do not begin in the same millisecond, and have less than a million events.
	return &events{services: services, firstID: int(started.UnixMilli()) * 1_000_000}
}

const (
	timeFormat    = "2006-01-02T15:04:05.000000Z"
	serviceDigits = 4
	idDigits      = 19
)

// pushRequest is an HTTP request with a system event in Pub/Sub's envelope, in which ids, service and times can be
// overwritten. All of them have one length, so it is made once. Not for use by two connections.
type pushRequest struct {
	events  *events
	encoded []byte
	data    span   // base64 of the payload
	ids     []span // of the envelope
	times   []span

	payload      []byte
	eventID      span
	service      span
	payloadTimes []span
}

type span struct{ from, end int }

func newPushRequest(target string, events *events) *pushRequest {
	id, at := bytes.Repeat([]byte{'I'}, idDigits), bytes.Repeat([]byte{'T'}, len(timeFormat))
	service := bytes.Repeat([]byte{'S'}, serviceDigits)
	payload := fmt.Appendf(nil, `{"schemaVersion":"1","eventType":"service.heartbeat","eventId":"%s",`+
		`"service":"service-%s","status":"ok","version":"1.4.2","region":"europe-west1","producedAt":"%s",`+
		`"lastHeartbeatAt":"%s"}`, id, service, at, at)
	data := bytes.Repeat([]byte{'D'}, base64.StdEncoding.EncodedLen(len(payload)))
	body := fmt.Appendf(nil, `{"message":{"data":"%s","messageId":"%s","message_id":"%s","publishTime":"%s",`+
		`"publish_time":"%s","attributes":{"topic":"system.events"}},"subscription":"projects/bench/subscriptions/load"}`,
		data, id, id, at, at)
	encoded := fmt.Appendf(nil, "POST /pubsub/push HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"+
		"User-Agent: load\r\nAccept: application/json\r\nContent-Length: %d\r\n\r\n%s", target, len(body), body)
	return &pushRequest{
		events:       events,
		encoded:      encoded,
		data:         spans(encoded, data)[0],
		ids:          spans(encoded, id),
		times:        spans(encoded, at),
		payload:      payload,
		eventID:      spans(payload, id)[0],
		service:      spans(payload, service)[0],
		payloadTimes: spans(payload, at),
	}
}

// spans are where it stands.
func spans(in, what []byte) []span {
	var found []span
	for from := 0; ; {
		at := bytes.Index(in[from:], what)
		if at < 0 {
			return found
		}
		found = append(found, span{from + at, from + at + len(what)})
		from += at + len(what)
	}
}

// number makes it the request of the event with this number, which happens now. Valid until the next call.
func (r *pushRequest) number(sequence int, now time.Time) []byte {
	var room [2 * len(timeFormat)]byte
	at := now.UTC().AppendFormat(room[:0], timeFormat)
	id := r.events.firstID + sequence
	writeDigits(r.payload, r.eventID, id)
	writeDigits(r.payload, r.service, sequence%r.events.services)
	for _, place := range r.payloadTimes {
		copy(r.payload[place.from:place.end], at)
	}
	base64.StdEncoding.Encode(r.encoded[r.data.from:r.data.end], r.payload)
	for _, place := range r.ids {
		writeDigits(r.encoded, place, id)
	}
	for _, place := range r.times {
		copy(r.encoded[place.from:place.end], at)
	}
	return r.encoded
}

func writeDigits(to []byte, place span, number int) {
	for i := place.end - 1; i >= place.from; i-- {
		to[i] = byte('0' + number%10)
		number /= 10
	}
}
