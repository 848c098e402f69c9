package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// message is a message of a .proto file.
type message struct {
	name    string
	comment []string
	fields  []protoField
}

// protoField is a field of a message.
type protoField struct {
	comment []string
	// label is "optional", "repeated" or empty.
	label string
	// typeName is as it is written there: a scalar, a message, or an enum, which may be of the same message.
	typeName string
	name     string
	number   string
}

// enum is an enum, which is always part of a message.
type enum struct {
	// name has the name of the message before that of the enum, with a dot between them.
	name    string
	comment []string
	values  []enumValue
}

// enumValue is a value of an enum.
type enumValue struct {
	comment []string
	name    string
	number  string
}

// schema is the content of all .proto files.
type schema struct {
	messages map[string]*message
	enums    map[string]*enum
}

var (
	opening    = regexp.MustCompile(`^(message|enum) (\w+) \{(\})?$`)
	fieldLine  = regexp.MustCompile(`^(?:(optional|repeated) )?([\w.]+) (\w+) = (\d+)(?: \[packed = false\])?;$`)
	valueLine  = regexp.MustCompile(`^(\w+) = (\d+);$`)
	skipped    = regexp.MustCompile(`^(syntax|package|import|reserved) .*;$`)
	commentRow = regexp.MustCompile(`^// ?(.*)$`)
)

// parseFolder reads the .proto files of a folder, which have one statement on each line.
func parseFolder(folder string) (*schema, error) {
	paths, err := filepath.Glob(filepath.Join(folder, "*.proto"))
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("%s has no .proto file", folder)
	}
	parsed := &schema{messages: map[string]*message{}, enums: map[string]*enum{}}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if err := parsed.add(string(text)); err != nil {
			return nil, fmt.Errorf("%s:%w", path, err)
		}
	}
	return parsed, nil
}

// add reads a file. An error begins with the number of its line.
func (s *schema) add(text string) error {
	var current *message
	var nested *enum
	var comment []string
	for index, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if found := commentRow.FindStringSubmatch(line); found != nil {
			comment = append(comment, found[1])
			continue
		}
		if found := opening.FindStringSubmatch(line); found != nil && nested == nil {
			switch {
			case found[1] == "message" && current == nil:
				opened := &message{name: found[2], comment: comment}
				s.messages[opened.name] = opened
				if found[3] == "" {
					current = opened
				}
			case found[1] == "enum" && current != nil:
				nested = &enum{name: current.name + "." + found[2], comment: comment}
				s.enums[nested.name] = nested
			default:
				return fmt.Errorf("%d: %q is not expected here", index+1, line)
			}
		} else if found := valueLine.FindStringSubmatch(line); found != nil && nested != nil {
			nested.values = append(nested.values, enumValue{comment: comment, name: found[1], number: found[2]})
		} else if found := fieldLine.FindStringSubmatch(line); found != nil && current != nil && nested == nil {
			field := protoField{comment: comment, label: found[1], typeName: found[2], name: found[3], number: found[4]}
			current.fields = append(current.fields, field)
		} else if line == "}" && nested != nil {
			nested = nil
		} else if line == "}" && current != nil {
			current = nil
		} else if line != "" && !skipped.MatchString(line) {
			return fmt.Errorf("%d: %q is not understood", index+1, line)
		}
		// A comment belongs to the line below it.
		comment = nil
	}
	if current != nil {
		return fmt.Errorf("0: the message %s has no end", current.name)
	}
	return nil
}
