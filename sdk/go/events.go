package bbs

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"
)

// longestEventLine bounds, in bytes, a line of a stream. Records of a BBS are at most a few MiB, and an event has two.
const longestEventLine = 64 << 20

// Event is one of [*DesiredLRPCreatedEvent], [*DesiredLRPChangedEvent], [*DesiredLRPRemovedEvent],
// [*ActualLRPInstanceCreatedEvent], [*ActualLRPInstanceChangedEvent], [*ActualLRPInstanceRemovedEvent] and
// [*ActualLRPCrashedEvent].
//
// A [*DesiredLRPChangedEvent] with an UpdateStatus says that the update of the LRP was halted, or is not any more.
type Event interface {
	isEvent()
}

func (*DesiredLRPCreatedEvent) isEvent()        {}
func (*DesiredLRPChangedEvent) isEvent()        {}
func (*DesiredLRPRemovedEvent) isEvent()        {}
func (*ActualLRPInstanceCreatedEvent) isEvent() {}
func (*ActualLRPInstanceChangedEvent) isEvent() {}
func (*ActualLRPInstanceRemovedEvent) isEvent() {}
func (*ActualLRPCrashedEvent) isEvent()         {}

// newEvent returns an empty event of the type that a stream has under a name; nil for an unknown name.
func newEvent(name string) Event {
	switch name {
	case "desired_lrp_created":
		return &DesiredLRPCreatedEvent{}
	case "desired_lrp_changed":
		return &DesiredLRPChangedEvent{}
	case "desired_lrp_removed":
		return &DesiredLRPRemovedEvent{}
	case "actual_lrp_instance_created":
		return &ActualLRPInstanceCreatedEvent{}
	case "actual_lrp_instance_changed":
		return &ActualLRPInstanceChangedEvent{}
	case "actual_lrp_instance_removed":
		return &ActualLRPInstanceRemovedEvent{}
	case "actual_lrp_crashed":
		return &ActualLRPCrashedEvent{}
	}
	return nil
}

// EventStream is a subscription. It is used by one goroutine at a time.
type EventStream struct {
	body   io.ReadCloser
	lines  *bufio.Reader
	cancel context.CancelFunc
}

// LRPInstanceEvents subscribes to the changes of desired LRPs and instances; with a cell id that is not empty, to those of
// the instances of that cell. The stream ends with the context at the latest.
//
// There is no snapshot and no replay: subscribe first, then read the present state; and again, in this order, once the stream
// has ended.
func (c *Client) LRPInstanceEvents(ctx context.Context, cellID string) (*EventStream, error) {
	const path = "events/lrp_instances.r1"
	body := encode(&eventsByCellId{CellID: cellID})
	var stream *EventStream
	err := c.attempt(ctx, func(ctx context.Context) (err error) {
		stream, err = c.subscribe(ctx, path, body)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return stream, nil
}

func (c *Client) subscribe(ctx context.Context, path string, body []byte) (*EventStream, error) {
	ctx, cancel := context.WithCancel(ctx)
	// The timeout is for the head of the answer; the stream has none.
	late := func() bool { return false }
	if c.config.RequestTimeout > 0 {
		timer := time.AfterFunc(c.config.RequestTimeout, cancel)
		late = func() bool { return !timer.Stop() }
	}
	answer, err := c.send(ctx, path, body, "text/event-stream")
	if late() {
		err = fmt.Errorf("the stream has not begun after %v: %w", c.config.RequestTimeout, context.DeadlineExceeded)
	}
	if err != nil {
		cancel()
		if answer != nil {
			answer.Body.Close()
		}
		return nil, err
	}
	return &EventStream{answer.Body, bufio.NewReader(answer.Body), cancel}, nil
}

// Next waits for the next event and returns it. Events of types that this package does not know are left out. The error is
// [io.EOF] once the BBS has ended the stream.
func (s *EventStream) Next() (Event, error) {
	for {
		name, data, err := s.nextNamed()
		if err != nil {
			return nil, err
		}
		event := newEvent(name)
		if event == nil {
			continue
		}
		message, err := base64.StdEncoding.DecodeString(data)
		if err == nil && len(message) == 0 {
			err = errors.New("it is empty")
		}
		if err != nil {
			return nil, &decodeError{reflect.TypeOf(event).Elem().Name(), err}
		}
		return event, decode(message, event)
	}
}

// Close ends the subscription; a [EventStream.Next] that waits returns an error.
func (s *EventStream) Close() error {
	s.cancel()
	return s.body.Close()
}

// nextNamed reads the lines of an event up to the empty one: its name, and its data as text.
func (s *EventStream) nextNamed() (name, data string, err error) {
	begun := false
	for {
		line, err := s.line()
		if errors.Is(err, io.EOF) && (begun || line != "") {
			return "", "", io.ErrUnexpectedEOF
		}
		if err != nil {
			return "", "", err
		}
		if line == "" && begun {
			return name, data, nil
		}
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch key {
		case "event":
			name = value
		case "data":
			data += value
		}
		begun = begun || line != ""
	}
}

// line reads a line, without its end.
func (s *EventStream) line() (string, error) {
	var whole []byte
	for {
		part, err := s.lines.ReadSlice('\n')
		whole = append(whole, part...)
		if len(whole) > longestEventLine {
			return "", fmt.Errorf("a line of the stream is longer than %d bytes", longestEventLine)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return strings.TrimRight(string(whole), "\r\n"), err
		}
	}
}
