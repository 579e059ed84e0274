package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

type envelope struct {
	Message struct {
		Data        string            `json:"data"`
		MessageID   string            `json:"messageId"`
		PublishTime time.Time         `json:"publishTime"`
		Attributes  map[string]string `json:"attributes"`
	} `json:"message"`
	Subscription string `json:"subscription"`
}

type systemEvent struct {
	EventID    string    `json:"eventId"`
	Service    string    `json:"service"`
	ProducedAt time.Time `json:"producedAt"`
}

func readEnvelope(t *testing.T, body io.Reader) (envelope, systemEvent) {
	t.Helper()
	var outer envelope
	if err := json.NewDecoder(body).Decode(&outer); err != nil {
		t.Fatal(err)
	}
	data, err := base64.StdEncoding.DecodeString(outer.Message.Data)
	if err != nil {
		t.Fatal(err)
	}
	var inner systemEvent
	if err := json.Unmarshal(data, &inner); err != nil {
		t.Fatal(err)
	}
	return outer, inner
}

func TestAPushRequestIsAnEnvelopeWithItsOwnEvent(t *testing.T) {
	started := time.Date(2026, 1, 8, 12, 34, 56, 123_456_000, time.UTC)
	request := newPushRequest("127.0.0.1:1", newEvents(1000, started))
	for _, sequence := range []int{0, 1, 2042} {
		now := started.Add(time.Duration(sequence) * time.Millisecond)
		read, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(request.number(sequence, now))))
		if err != nil || read.URL.Path != "/pubsub/push" || read.Host != "127.0.0.1:1" {
			t.Fatalf("%v, %v", read, err)
		}
		outer, inner := readEnvelope(t, read.Body)
		id := fmt.Sprint(started.UnixMilli()*1_000_000 + int64(sequence))
		if outer.Message.MessageID != id || inner.EventID != id {
			t.Errorf("%d: %v, %v", sequence, outer, inner)
		}
		service := fmt.Sprintf("service-%04d", sequence%1000)
		if inner.Service != service || outer.Message.Attributes["topic"] != "system.events" {
			t.Errorf("%d: %v, %v", sequence, outer, inner)
		}
		if !outer.Message.PublishTime.Equal(now) || !inner.ProducedAt.Equal(now) {
			t.Errorf("%d: published %v, produced %v", sequence, outer.Message.PublishTime, inner.ProducedAt)
		}
	}
}

func TestAnAnswerIsReadToItsEndAndNoFurther(t *testing.T) {
	two := "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 3\r\n\r\nabc" +
		"HTTP/1.1 429 Too Many Requests\r\ncontent-length:0\r\n\r\n"
	from := bufio.NewReader(strings.NewReader(two))
	if status, body, err := readAnswer(from); status != 200 || string(body) != "abc" || err != nil {
		t.Errorf("%d %s %v", status, body, err)
	}
	if status, body, err := readAnswer(from); status != 429 || len(body) != 0 || err != nil {
		t.Errorf("%d %s %v", status, body, err)
	}
	for _, wrong := range []string{
		"", "HTTP/1.1 200 OK\r\n\r\n", "HTTP/2 200\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc",
	} {
		if _, _, err := readAnswer(bufio.NewReader(strings.NewReader(wrong))); err == nil {
			t.Errorf("%q was read as an answer", wrong)
		}
	}
}

// consumeFrom measures an endpoint that answers the n-th request with what answer gives.
func consumeFrom(t *testing.T, messages int, answer func(n int64) (status int, body string)) (result, error) {
	t.Helper()
	var count atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		status, body := answer(count.Add(1))
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	defer server.Close()
	target := strings.TrimPrefix(server.URL, "http://")
	s := settings{target: target, messages: messages, connections: 4, services: 10, limit: 10 * time.Second}
	return measureConsume(t.Context(), s)
}

func TestEveryEventIsCountedOnce(t *testing.T) {
	measured, err := consumeFrom(t, 50, func(int64) (int, string) { return 200, `{"outcome":"applied"}` })
	if err != nil || measured.Messages != 50 || !measured.Complete || measured.P99Ms == nil {
		t.Errorf("%v, %v", measured, err)
	}
}

func TestABusyEndpointMakesItIncomplete(t *testing.T) {
	measured, err := consumeFrom(t, 50, func(n int64) (int, string) {
		if n == 7 {
			return 429, "{}"
		}
		return 200, `{"outcome":"applied"}`
	})
	if err != nil || measured.Messages != 49 || measured.Complete {
		t.Errorf("%v, %v", measured, err)
	}
}

func TestAnyOtherAnswerEndsIt(t *testing.T) {
	for _, one := range []struct {
		status int
		body   string
	}{{500, "{}"}, {200, `{"outcome":"duplicate"}`}} {
		_, err := consumeFrom(t, 50, func(n int64) (int, string) {
			if n == 7 {
				return one.status, one.body
			}
			return 200, `{"outcome":"applied"}`
		})
		if err == nil || !strings.Contains(err.Error(), one.body) {
			t.Errorf("%v: %v", one, err)
		}
	}
}

func TestNobodyListensIsSaid(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := settings{target: listener.Addr().String(), messages: 1, connections: 2, services: 1}
	_ = listener.Close()
	if _, err := measureConsume(t.Context(), s); err == nil {
		t.Error("it measured nothing")
	}
}
