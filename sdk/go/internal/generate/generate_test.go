package main

import (
	"bytes"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	protoFiles = "../../../proto/proto/models"
	generated  = "../../messages.go"
)

func TestGeneratedFileIsThatOfTheProtoFiles(t *testing.T) {
	if _, err := os.Stat(protoFiles); os.IsNotExist(err) {
		t.Skip("the .proto files are in the repository alone")
	}
	expected, err := generate(protoFiles)
	if err != nil {
		t.Fatal(err)
	}
	found, err := os.ReadFile(generated)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(found, expected) {
		t.Error("the .proto files have changed: run `go generate` in sdk/go")
	}
}

func TestStatementsThatAreNotUnderstoodAreErrors(t *testing.T) {
	for text, expected := range map[string]string{
		"message A {\n  map<string, string> b = 1;\n}": "2: ",
		"message A {\n  message B {\n  }\n}":           "2: ",
		"enum A {\n}":                                  "1: ",
		"message A {\n  string b = 1;":                 "the message A has no end",
		"service A {\n}":                               "1: ",
	} {
		err := (&schema{messages: map[string]*message{}, enums: map[string]*enum{}}).add(text)
		if err == nil || !strings.Contains(err.Error(), expected) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestFieldsThatTheCodecDoesNotHaveAreErrors(t *testing.T) {
	for text, expected := range map[string]string{
		"message A {\n  double b = 1;\n}":                  "there is no message double",
		"message A {\n  repeated int64 b = 1;\n}":          "lists of int64",
		"message A {\n  string b = 2;\n  string c = 1;\n}": "not above the one before",
	} {
		schema := &schema{messages: map[string]*message{}, enums: map[string]*enum{}}
		if err := schema.add(text); err != nil {
			t.Fatal(err)
		}
		if _, err := write(schema, []string{"A"}); err == nil || !strings.Contains(err.Error(), expected) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestSourcesAreFormattedAndDocumented checks what gofmt and a reader of the documentation expect of every file.
func TestSourcesAreFormattedAndDocumented(t *testing.T) {
	paths, err := filepath.Glob("../../*.go")
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	own, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(paths, own...) {
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if formatted, err := format.Source(source); err != nil || !bytes.Equal(formatted, source) {
			t.Errorf("%s is not formatted; run `gofmt -w` (%v)", path, err)
		}
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, source, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for name, comment := range exported(file) {
			if !strings.HasPrefix(comment, name+" ") {
				t.Errorf("%s: the documentation of %s does not begin with its name", path, name)
			}
		}
	}
}

// exported returns the exported types, functions and variables of a file, with their documentation.
func exported(file *ast.File) map[string]string {
	found := map[string]string{}
	add := func(name *ast.Ident, comments ...*ast.CommentGroup) {
		if !name.IsExported() {
			return
		}
		found[name.Name] = ""
		for _, comment := range comments {
			found[name.Name] += comment.Text()
		}
	}
	for _, declared := range file.Decls {
		switch declared := declared.(type) {
		case *ast.FuncDecl:
			add(declared.Name, declared.Doc)
		case *ast.GenDecl:
			for _, spec := range declared.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					add(spec.Name, declared.Doc)
				case *ast.ValueSpec:
					// The values of an enum are documented together.
					if declared.Tok == token.VAR {
						add(spec.Names[0], spec.Doc)
					}
				}
			}
		}
	}
	return found
}
