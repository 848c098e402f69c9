package bbs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"sort"
	"sync"
)

// Wire types of protobuf. Groups are not among them: no message of the BBS has one.
const (
	varintType  = 0
	fixed64Type = 1
	bytesType   = 2
	fixed32Type = 5
)

// deepestMessage bounds the nesting of received messages, such as actions within actions.
const deepestMessage = 100

// UnknownFields is part of every message: the received fields that this package has no name for, one after the other as they
// were received. They are sent as they are. A string, so that keys can be compared with ==.
type UnknownFields string

// unknownFields is the name of that field.
const unknownFields = "UnknownFields"

var errTruncated = errors.New("it is truncated")

// field is a field of a message.
type field struct {
	// number is that of the protobuf field.
	number uint64
	// index is that of the Go field.
	index int
}

// knownFields caches the fields of each message type: reflect.Type to []field, in ascending order of their numbers.
var knownFields sync.Map

// fieldsOf returns the fields of a generated struct. Their order there is that of their numbers.
func fieldsOf(message reflect.Type) []field {
	if cached, ok := knownFields.Load(message); ok {
		return cached.([]field)
	}
	var fields []field
	for index := 0; index < message.NumField(); index++ {
		var number uint64
		if _, err := fmt.Sscan(message.Field(index).Tag.Get("bbs"), &number); err == nil {
			fields = append(fields, field{number, index})
		}
	}
	knownFields.Store(message, fields)
	return fields
}

// encode returns the protobuf form of a generated struct, to which message points. Maps are written in the order of their
// keys, so that equal messages have equal bytes.
func encode(message any) []byte {
	return appendMessage(nil, reflect.ValueOf(message).Elem())
}

func appendMessage(out []byte, message reflect.Value) []byte {
	for _, field := range fieldsOf(message.Type()) {
		out = appendField(out, field.number, message.Field(field.index))
	}
	return append(out, message.FieldByName(unknownFields).String()...)
}

// appendField writes a field; nothing if it is absent or, without presence of its own, zero.
func appendField(out []byte, number uint64, value reflect.Value) []byte {
	switch value.Kind() {
	case reflect.Struct:
		return appendValue(out, number, value)
	case reflect.Pointer:
		if value.IsNil() {
			return out
		}
		return appendValue(out, number, value.Elem())
	case reflect.Map:
		return appendMap(out, number, value)
	case reflect.Slice:
		if value.Type().Elem().Kind() != reflect.Uint8 {
			for index := 0; index < value.Len(); index++ {
				out = appendValue(out, number, value.Index(index))
			}
			return out
		}
		if value.Len() == 0 {
			return out
		}
	default:
		if value.IsZero() {
			return out
		}
	}
	return appendValue(out, number, value)
}

// appendMap writes a map as its entries, each with its key and its value even if they are empty, as Diego does.
func appendMap(out []byte, number uint64, entries reflect.Value) []byte {
	keys := entries.MapKeys()
	sort.Slice(keys, func(a, b int) bool { return keys[a].String() < keys[b].String() })
	for _, key := range keys {
		entry := appendValue(nil, 1, key)
		entry = appendValue(entry, 2, entries.MapIndex(key))
		out = appendBytes(out, number, entry)
	}
	return out
}

// appendValue writes a value with its key, even if it is zero.
func appendValue(out []byte, number uint64, value reflect.Value) []byte {
	switch value.Kind() {
	case reflect.Pointer:
		// An element of a list or a map; nil counts as the empty message.
		if value.IsNil() {
			return appendBytes(out, number, nil)
		}
		return appendValue(out, number, value.Elem())
	case reflect.Struct:
		return appendBytes(out, number, appendMessage(nil, value))
	case reflect.String:
		return appendBytes(out, number, []byte(value.String()))
	case reflect.Slice:
		return appendBytes(out, number, value.Bytes())
	}
	out = binary.AppendUvarint(out, number<<3|varintType)
	switch value.Kind() {
	case reflect.Bool:
		if value.Bool() {
			return append(out, 1)
		}
		return append(out, 0)
	case reflect.Int32, reflect.Int64:
		// Negative numbers of 32 bits are sign-extended, as protobuf has it.
		return binary.AppendUvarint(out, uint64(value.Int()))
	default:
		return binary.AppendUvarint(out, value.Uint())
	}
}

func appendBytes(out []byte, number uint64, content []byte) []byte {
	out = binary.AppendUvarint(out, number<<3|bytesType)
	out = binary.AppendUvarint(out, uint64(len(content)))
	return append(out, content...)
}

// decode reads the protobuf form of a message into a generated struct, to which message points. Fields that the struct does
// not have are kept in its UnknownFields, as they are.
func decode(data []byte, message any) error {
	target := reflect.ValueOf(message).Elem()
	if err := decodeMessage(data, target, 1); err != nil {
		return &decodeError{target.Type().Name(), err}
	}
	return nil
}

// decodeError is the error of bytes that are not the expected message.
type decodeError struct {
	message string
	cause   error
}

// Error returns the name of the message and the cause.
func (e *decodeError) Error() string {
	return fmt.Sprintf("the BBS sent no valid %s: %v", e.message, e.cause)
}

// Unwrap returns the cause.
func (e *decodeError) Unwrap() error {
	return e.cause
}

// wireValue is a value as it was received.
type wireValue struct {
	wireType uint64
	// number is the value of a varint.
	number uint64
	// content is what follows the length, and shares memory with what was received.
	content []byte
}

// nextField splits the first field off: its number, its value, and what follows.
func nextField(data []byte) (uint64, wireValue, []byte, error) {
	key, data, err := nextVarint(data)
	if err != nil {
		return 0, wireValue{}, nil, err
	}
	value := wireValue{wireType: key & 7}
	length := uint64(0)
	switch value.wireType {
	case varintType:
		value.number, data, err = nextVarint(data)
	case fixed64Type:
		length = 8
	case fixed32Type:
		length = 4
	case bytesType:
		length, data, err = nextVarint(data)
	default:
		err = fmt.Errorf("field %d has the wire type %d", key>>3, value.wireType)
	}
	if err == nil && key>>3 == 0 {
		err = errors.New("a field has the number 0")
	}
	if err == nil && length > uint64(len(data)) {
		err = errTruncated
	}
	if err != nil {
		return 0, wireValue{}, nil, err
	}
	value.content = data[:length]
	return key >> 3, value, data[length:], nil
}

func nextVarint(data []byte) (uint64, []byte, error) {
	number, length := binary.Uvarint(data)
	if length <= 0 {
		return 0, nil, errTruncated
	}
	return number, data[length:], nil
}

func decodeMessage(data []byte, message reflect.Value, depth int) error {
	if depth > deepestMessage {
		return fmt.Errorf("it has more than %d messages within each other", deepestMessage)
	}
	fields := fieldsOf(message.Type())
	var unknown []byte
	for len(data) > 0 {
		number, value, rest, err := nextField(data)
		if err != nil {
			return err
		}
		at := sort.Search(len(fields), func(at int) bool { return fields[at].number >= number })
		if at < len(fields) && fields[at].number == number {
			if err := decodeField(value, message.Field(fields[at].index), depth); err != nil {
				return fmt.Errorf("field %d: %w", number, err)
			}
		} else {
			unknown = append(unknown, data[:len(data)-len(rest)]...)
		}
		data = rest
	}
	if len(unknown) > 0 {
		kept := message.FieldByName(unknownFields)
		kept.SetString(kept.String() + string(unknown))
	}
	return nil
}

// decodeField adds a value to a field: the last one of a scalar counts, messages are merged, lists and maps grow.
func decodeField(value wireValue, target reflect.Value, depth int) error {
	switch target.Kind() {
	case reflect.Map:
		return decodeEntry(value, target, depth)
	case reflect.Slice:
		element := target.Type().Elem()
		if element.Kind() == reflect.Uint8 {
			break
		}
		if element.Kind() == reflect.Uint32 && value.wireType == bytesType {
			return decodePacked(value.content, target)
		}
		added := reflect.New(element).Elem()
		if err := decodeValue(value, added, depth); err != nil {
			return err
		}
		target.Set(reflect.Append(target, added))
		return nil
	}
	return decodeValue(value, target, depth)
}

// decodePacked reads numbers that were written as one field, which protobuf allows for every list of numbers.
func decodePacked(content []byte, target reflect.Value) error {
	for len(content) > 0 {
		number, rest, err := nextVarint(content)
		if err != nil {
			return err
		}
		target.Set(reflect.Append(target, reflect.ValueOf(uint32(number))))
		content = rest
	}
	return nil
}

// decodeEntry adds an entry to a map; a missing key or value is the empty one.
func decodeEntry(value wireValue, target reflect.Value, depth int) error {
	if value.wireType != bytesType {
		return fmt.Errorf("the wire type is %d instead of %d", value.wireType, bytesType)
	}
	parts := [2]reflect.Value{reflect.New(target.Type().Key()).Elem(), reflect.New(target.Type().Elem()).Elem()}
	if element := target.Type().Elem(); element.Kind() == reflect.Pointer {
		parts[1].Set(reflect.New(element.Elem()))
	}
	for data := value.content; len(data) > 0; {
		number, part, rest, err := nextField(data)
		if err != nil {
			return err
		}
		if number <= uint64(len(parts)) {
			if err := decodeValue(part, parts[number-1], depth); err != nil {
				return err
			}
		}
		data = rest
	}
	if target.IsNil() {
		target.Set(reflect.MakeMap(target.Type()))
	}
	target.SetMapIndex(parts[0], parts[1])
	return nil
}

func decodeValue(value wireValue, target reflect.Value, depth int) error {
	if target.Kind() == reflect.Pointer {
		if target.IsNil() {
			target.Set(reflect.New(target.Type().Elem()))
		}
		return decodeValue(value, target.Elem(), depth)
	}
	expected := uint64(varintType)
	switch target.Kind() {
	case reflect.Struct, reflect.String, reflect.Slice:
		expected = bytesType
	}
	if value.wireType != expected {
		return fmt.Errorf("the wire type is %d instead of %d", value.wireType, expected)
	}
	switch target.Kind() {
	case reflect.Struct:
		return decodeMessage(value.content, target, depth+1)
	case reflect.String:
		// Not checked to be UTF-8, as Diego does not check it.
		target.SetString(string(value.content))
	case reflect.Slice:
		target.SetBytes(append([]byte{}, value.content...))
	case reflect.Bool:
		target.SetBool(value.number != 0)
	case reflect.Int32:
		target.SetInt(int64(int32(value.number)))
	case reflect.Uint32:
		target.SetUint(uint64(uint32(value.number)))
	case reflect.Int64:
		target.SetInt(int64(value.number))
	default:
		target.SetUint(value.number)
	}
	return nil
}
