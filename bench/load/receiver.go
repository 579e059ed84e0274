package main

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	noContent  = http.StatusNoContent
	pathPrefix = "/push/"

	// never as an answer means none at all: the request stays open until the receiver stops.
	never = 0
)

// take is told of a message for a subscription, by their numbers, and gives the status to answer, or never. It is
// called from many requests at once.
type take func(subscription, sequence int) (status int, err error)

// receiver is the push endpoint of all subscriptions, with a path for each. It reads each request whole.
type receiver struct {
	listener net.Listener
	server   *http.Server
	take     take
	stopped  chan struct{}

	mutex sync.Mutex
	err   error
}

func startReceiver(take take) (*receiver, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &receiver{listener: listener, take: take, stopped: make(chan struct{})}
	r.server = &http.Server{Handler: http.HandlerFunc(r.receive), ReadHeaderTimeout: time.Minute}
	go func() {
		if err := r.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			r.fail(err)
		}
	}()
	return r, nil
}

func (r *receiver) url(subscription int) string {
	return fmt.Sprintf("http://%s%s%d", r.listener.Addr(), pathPrefix, subscription)
}

func (r *receiver) urls(subscriptions int) []string {
	urls := make([]string, subscriptions)
	for subscription := range subscriptions {
		urls[subscription] = r.url(subscription)
	}
	return urls
}

func (r *receiver) stop() {
	close(r.stopped)
	_ = r.server.Close()
}

var bodies = sync.Pool{New: func() any { return new(bytes.Buffer) }}

func (r *receiver) receive(w http.ResponseWriter, request *http.Request) {
	body := bodies.Get().(*bytes.Buffer)
	defer bodies.Put(body)
	body.Reset()
	if _, err := io.Copy(body, request.Body); err != nil {
		return // the sender went away: it will try again, or the count stays short and says so
	}
	status, err := r.note(request.URL.Path, body.Bytes())
	if err != nil {
		r.fail(err)
		status = noContent // once more would not help
	}
	if status == never {
		r.hang(request)
	}
	w.WriteHeader(status)
}

// hang returns to nobody: a handler that simply ends has answered 200.
func (r *receiver) hang(request *http.Request) {
	select {
	case <-r.stopped:
	case <-request.Context().Done(): // the sender lost its patience
	}
	panic(http.ErrAbortHandler)
}

func (r *receiver) note(path string, envelope []byte) (status int, err error) {
	subscription, err := strconv.Atoi(strings.TrimPrefix(path, pathPrefix))
	if err != nil {
		return 0, fmt.Errorf("a push request came to %s: %w", path, err)
	}
	sequence, err := envelopeSequence(envelope)
	if err != nil {
		return 0, err
	}
	return r.take(subscription, sequence)
}

func (r *receiver) fail(err error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.err = err
}

// failure is what went wrong at the endpoint, if anything did.
func (r *receiver) failure() error {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.err
}

var dataKey = []byte(`"data"`)

// envelopeSequence finds the start of the message's data in a push envelope. No attribute of ours is called data, so
// the first such key is the message's own.
func envelopeSequence(envelope []byte) (int, error) {
	_, rest, found := bytes.Cut(envelope, dataKey)
	if !found {
		return 0, errors.New("a push request has no data")
	}
	_, value, found := bytes.Cut(rest, []byte{'"'})
	encodedLength := base64.StdEncoding.EncodedLen(sequenceDigits)
	if !found || len(value) < encodedLength {
		return 0, errors.New("a push request's data is no base64 string")
	}
	var data [sequenceDigits]byte
	if _, err := base64.StdEncoding.Decode(data[:], value[:encodedLength]); err != nil {
		return 0, err
	}
	return readSequence(data[:])
}
