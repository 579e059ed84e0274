package main

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"
)

const envelope42 = `{"message":{"data":"MDAwMDAwMDAwMDQyeHh4"}}`

func TestFairnessIsOneForAllAlikeAndOneNthForOneAlone(t *testing.T) {
	for _, one := range []struct {
		counts []int
		want   float64
	}{{[]int{5, 5, 5, 5}, 1}, {[]int{20, 0, 0, 0}, 0.25}, {[]int{1, 3}, 0.8}} {
		if got := jain(one.counts); math.Abs(got-one.want) > 1e-9 {
			t.Errorf("%v: %v, not %v", one.counts, got, one.want)
		}
	}
}

func TestAnEndpointHangsOnlyAfterTheWarmup(t *testing.T) {
	f := newFanout(settings{subscriptions: 2, hanging: 1, messages: 20})
	f.started = time.Now()
	for _, one := range []struct{ subscription, sequence, status int }{
		{0, 0, noContent}, {0, 19, noContent}, {1, 1, noContent}, {1, 2, never}, {1, 19, never},
	} {
		if status, err := f.take(one.subscription, one.sequence); status != one.status || err != nil {
			t.Errorf("%v: %d, %v", one, status, err)
		}
	}
	if _, err := f.take(0, 20); err == nil {
		t.Error("a message that was never sent was taken")
	}
	if f.wanted() != 20 || f.arrived.Load() != 2 {
		t.Errorf("%d of %d arrived", f.arrived.Load(), f.wanted())
	}
}

func TestAFanoutIsDoneWhenEverybodyHasEverythingOnce(t *testing.T) {
	f := newFanout(settings{subscriptions: 2, messages: 2})
	f.started = time.Now()
	for _, one := range [][2]int{{0, 0}, {0, 1}, {0, 1}, {1, 1}} {
		_, _ = f.take(one[0], one[1])
	}
	select {
	case <-f.done:
		t.Fatal("done before the last message")
	default:
	}
	_, _ = f.take(1, 0)
	<-f.done
	if f.duplicates.Load() != 1 {
		t.Errorf("%d duplicates", f.duplicates.Load())
	}
}

func TestTheSlowestIsComparedWithTheMedianAndLatencyCountsFromTheAnswer(t *testing.T) {
	f := newFanout(settings{subscriptions: 3, messages: 2})
	for index, ms := range []int64{1, 2, 3, 4, 5, 8} { // two messages of each subscription
		f.times[index].Store(ms * int64(time.Millisecond))
	}
	f.accepted[0].Store(int64(2 * time.Millisecond)) // after the first subscription had it
	measured := result{Complete: true}
	f.describe(&measured)
	if *measured.SlowestOverMedian != 2 || *measured.P50Ms != 2 || *measured.P99Ms != 8 {
		t.Errorf("slowest %v, p50 %v, p99 %v", *measured.SlowestOverMedian, *measured.P50Ms, *measured.P99Ms)
	}
	// The fourth of six is the second message of the second subscription.
	if counts := f.countsAt(f.all()[3]); fmt.Sprint(counts) != "[2 2 0]" {
		t.Errorf("at half %v", counts)
	}
}

func TestAReceiverTellsWhoGotWhatAndAnswersAsTold(t *testing.T) {
	told := make(chan string, 1)
	r, err := startReceiver(func(subscription, sequence int) (int, error) {
		told <- fmt.Sprint(subscription, sequence)
		return http.StatusUnprocessableEntity, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer r.stop()
	answer, err := http.Post(r.url(7), "application/json", strings.NewReader(envelope42))
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if got := <-told; got != "7 42" || answer.StatusCode != http.StatusUnprocessableEntity || r.failure() != nil {
		t.Errorf("%s, %s, %v", got, answer.Status, r.failure())
	}
}

func TestAHangingEndpointNeverAnswers(t *testing.T) {
	taken := make(chan struct{})
	r, err := startReceiver(func(int, int) (int, error) { close(taken); return never, nil })
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	go func() {
		answer, err := http.Post(r.url(0), "application/json", strings.NewReader(envelope42))
		if err == nil {
			_ = answer.Body.Close()
		}
		failed <- err
	}()
	<-taken
	r.stop()
	if <-failed == nil {
		t.Error("it answered when it stopped")
	}
}

func TestAScheduleKeepsItsRate(t *testing.T) {
	started := time.Now()
	newSchedule(started, 100, nil).wait(context.Background(), 3)
	if waited := time.Since(started); waited < 30*time.Millisecond {
		t.Errorf("the fourth of 100 a second came after %v", waited)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	newSchedule(started, 1, nil).wait(ended, 3600) // does not wait for an hour
}

func TestSomebodyMustAnswer(t *testing.T) {
	target := []string{"-target", "127.0.0.1:1", "-subscriptions", "2", "-hanging"}
	if _, err := parse("fanout", append(target, "1")); err != nil {
		t.Error(err)
	}
	for _, hanging := range []string{"2", "-1"} {
		if _, err := parse("fanout", append(target, hanging)); err == nil {
			t.Errorf("%s of 2 were allowed to hang", hanging)
		}
	}
}
