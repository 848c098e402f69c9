// The generate command writes the Go types of the messages of the BBS, from the .proto files of the repository.
//
//	go run ./internal/generate ../proto/proto/models messages.go
package main

import (
	"log"
	"os"
)

// roots are the messages of the client's calls and events. The generated file has these, and all that they contain.
var roots = []string{
	"ActualLRPCrashedEvent",
	"ActualLRPInstanceChangedEvent",
	"ActualLRPInstanceCreatedEvent",
	"ActualLRPInstanceRemovedEvent",
	"ActualLRPsRequest",
	"ActualLRPsResponse",
	"CancelUpdateDesiredLRPRequest",
	"DesireLRPRequest",
	"DesiredLRPByProcessGuidRequest",
	"DesiredLRPChangedEvent",
	"DesiredLRPCreatedEvent",
	"DesiredLRPLifecycleResponse",
	"DesiredLRPRemovedEvent",
	"DesiredLRPResponse",
	"DesiredLRPRunInfo",
	"DesiredLRPSchedulingInfosResponse",
	"DesiredLRPUpdateStatusRequest",
	"DesiredLRPUpdateStatusResponse",
	"DesiredLRPsRequest",
	"DesiredLRPsResponse",
	"EventsByCellId",
	"LRPDefinitionsRequest",
	"LRPDefinitionsResponse",
	"PingResponse",
	"RemoveDesiredLRPRequest",
	"RollbackDesiredLRPRequest",
	"UpdateDesiredLRPRequest",
}

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: generate FOLDER-OF-PROTO-FILES GO-FILE")
	}
	source, err := generate(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(os.Args[2], source, 0o644); err != nil {
		log.Fatal(err)
	}
}

// generate returns the source of the types of the roots.
func generate(folder string) ([]byte, error) {
	schema, err := parseFolder(folder)
	if err != nil {
		return nil, err
	}
	return write(schema, roots)
}
