package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The kernel counts CPU time in /proc in hundredths of a second on every Linux that Go runs on.
const ticksPerSecond = 100

// timer measures one piece of work from its start to result: the wall time, and who used how much CPU time meanwhile.
type timer struct {
	started   time.Time
	serverPID int
	own       float64
	server    float64
	machine   float64
}

func startTimer(s settings) timer {
	return timer{
		started:   time.Now(),
		serverPID: s.serverPID,
		own:       ownCPUSeconds(),
		server:    processCPUSeconds(s.serverPID),
		machine:   machineCPUSeconds(),
	}
}

func (t timer) deadline(limit time.Duration) time.Time {
	return t.started.Add(limit)
}

func (t timer) result(messages, wanted int) result {
	seconds := time.Since(t.started).Seconds()
	return result{
		Messages:          messages,
		Seconds:           seconds,
		PerSecond:         float64(messages) / seconds,
		Complete:          messages == wanted,
		CPUSeconds:        ownCPUSeconds() - t.own,
		ServerCPUSeconds:  processCPUSeconds(t.serverPID) - t.server,
		ServerPeakRSSMB:   processPeakRSSMB(t.serverPID),
		MachineCPUSeconds: machineCPUSeconds() - t.machine,
	}
}

// ownCPUSeconds is what this process has used so far, in user and kernel mode.
func ownCPUSeconds() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}

// processCPUSeconds is 0 for a process that cannot be read: not knowing is no reason to stop a measurement.
func processCPUSeconds(pid int) float64 {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The name in parentheses may hold anything, so the count begins behind it: utime and stime are fields 14 and 15.
	_, rest, _ := bytes.Cut(stat, []byte(") "))
	return sumFields(string(rest), 11, 13)
}

// machineCPUSeconds is what all processes have used so far, on all cores.
func machineCPUSeconds() float64 {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(stat), "\n")
	// cpu user nice system idle iowait irq softirq: idle and iowait are no work.
	return sumFields(line, 1, 4) + sumFields(line, 6, 8)
}

func sumFields(line string, first, end int) float64 {
	fields := strings.Fields(line)
	if len(fields) < end {
		return 0
	}
	total := 0.0
	for _, field := range fields[first:end] {
		ticks, _ := strconv.ParseFloat(field, 64)
		total += ticks
	}
	return total / ticksPerSecond
}

func processPeakRSSMB(pid int) float64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	kibibytes, _ := strconv.ParseFloat(fields[0], 64)
	return kibibytes * 1024 / 1e6
}
