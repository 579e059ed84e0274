package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// measurePush: messages a second from publish to their arrival at a push endpoint that answers at once.
func measurePush(ctx context.Context, s settings) (result, error) {
	receiver, err := startReceiver(s.messages)
	if err != nil {
		return result{}, err
	}
	defer receiver.stop()
	srv, err := open(ctx, s, receiver.url())
	if err != nil {
		return result{}, err
	}
	defer srv.close()
	timer := startTimer(s)
	deadline := timer.deadline(s.limit)
	if _, err := publishAll(ctx, srv, s, deadline); err != nil {
		return result{}, err
	}
	select {
	case <-receiver.done:
	case <-time.After(time.Until(deadline)):
	}
	distinct, duplicates, err := receiver.counts()
	if err != nil {
		return result{}, err
	}
	measured := timer.result(distinct, s.messages)
	measured.Duplicates = duplicates
	return measured, nil
}

// receiver is the push endpoint. It reads each request whole, notes its sequence number and answers 204.
type receiver struct {
	listener net.Listener
	server   *http.Server
	done     chan struct{} // closed when every message has arrived

	mutex   sync.Mutex
	arrived *seen
	err     error
}

func startReceiver(messages int) (*receiver, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &receiver{listener: listener, done: make(chan struct{}), arrived: newSeen(messages)}
	r.server = &http.Server{Handler: http.HandlerFunc(r.receive), ReadHeaderTimeout: time.Minute}
	go func() {
		if err := r.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			r.fail(err)
		}
	}()
	return r, nil
}

func (r *receiver) url() string {
	return fmt.Sprintf("http://%s/push", r.listener.Addr())
}

func (r *receiver) stop() {
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
	sequence, err := envelopeSequence(body.Bytes())
	if err != nil {
		r.fail(err)
	} else {
		r.mark(sequence)
	}
	w.WriteHeader(http.StatusNoContent)
}

func (r *receiver) mark(sequence int) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	before := r.arrived.distinct
	if err := r.arrived.mark(sequence); err != nil {
		r.err = err
	}
	if r.arrived.all() && r.arrived.distinct > before {
		close(r.done)
	}
}

func (r *receiver) fail(err error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.err = err
}

func (r *receiver) counts() (distinct, duplicates int, err error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.arrived.distinct, r.arrived.duplicates, r.err
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
