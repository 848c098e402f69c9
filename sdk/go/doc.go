// Package bbs is a client of a BBS of Cloud Foundry's Diego that serves API version 1.2, which adds definitions to desired
// LRPs: updates of what an LRP runs, their cancellation and rollback, their status, and the archived definitions. It needs
// nothing outside of Go's standard library.
//
// A [Client] is made with [New] and may be used by several goroutines. Each of its methods is one call. It is made up to three
// times, half a second apart, if the BBS could not be reached, the connection broke, or the answer was a server error, such as
// the 503 of a BBS that migrates its database. A call that was made again after its answer was lost may therefore fail with
// [ErrResourceExists] or [ErrResourceNotFound] because of itself, or with [ErrUpdateInProgress] because of the update that it has
// begun: [Client.DesiredLRPUpdateStatus] returns the definition of that.
//
// # Errors
//
// An error that the BBS answers with is an [*Error]; compare it with the variables of this package, such as
// [ErrUpdateInProgress], with [errors.Is]. An answer that is not the API's is a [*StatusError]. Other errors are those of
// package net/http, and of the context.
//
// # Messages
//
// The types of the messages are generated from the .proto files of the repository. A pointer is nil where the field is absent.
// Times are in nanoseconds since 1970. Fields that a newer BBS sends are kept in UnknownFields, so that an LRP that was read
// can be written without losing them.
package bbs

//go:generate go run ./internal/generate ../proto/proto/models messages.go
