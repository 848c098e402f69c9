package bbs

import (
	"fmt"
	"time"
)

// Errors that the BBS answers with, to be compared by [errors.Is], which looks at their types alone.
var (
	// ErrDefinitionExists is the answer to an update whose definition has the id of another one of the LRP, with other
	// content.
	ErrDefinitionExists = &Error{Type: ErrorTypeDefinitionExists, Message: "the definition exists"}
	// ErrDefinitionNotFound is the answer to a rollback to a definition that the archive does not have, or not any more.
	ErrDefinitionNotFound = &Error{Type: ErrorTypeDefinitionNotFound, Message: "the definition could not be found"}
	// ErrInvalidRequest is the answer to a request that fails validation.
	ErrInvalidRequest = &Error{Type: ErrorTypeInvalidRequest, Message: "the request is invalid"}
	// ErrNoUpdateInProgress is the answer to a cancellation while no update is under way.
	ErrNoUpdateInProgress = &Error{Type: ErrorTypeNoUpdateInProgress, Message: "no update is in progress"}
	// ErrResourceExists is the answer to an LRP that is desired again.
	ErrResourceExists = &Error{Type: ErrorTypeResourceExists, Message: "the resource exists"}
	// ErrResourceNotFound is the answer to a call about an LRP that is not desired.
	ErrResourceNotFound = &Error{Type: ErrorTypeResourceNotFound, Message: "the resource could not be found"}
	// ErrUpdateInProgress is the answer to an update to a definition, or a rollback, while an update is under way
	// that is not cancelled.
	ErrUpdateInProgress = &Error{Type: ErrorTypeUpdateInProgress, Message: "an update is in progress"}
)

// Error returns the type and the text of the error.
func (e *Error) Error() string {
	return fmt.Sprintf("%v: %s", e.Type, e.Message)
}

// Is returns whether the target is an [*Error] of the same type.
func (e *Error) Is(target error) bool {
	other, ok := target.(*Error)
	return ok && other.Type == e.Type
}

// StatusError is an answer that is not the API's: of a path or version that the BBS does not serve (404, 406), of a BBS that
// migrates its database or is busy (503), or of a proxy between the two.
type StatusError struct {
	// Code is the HTTP status.
	Code int
	// RetryAfter is the time after which the BBS expects to serve; zero if it does not say.
	RetryAfter time.Duration
	// Body is the beginning of the answer.
	Body string
}

// Error returns the status and the beginning of the answer.
func (e *StatusError) Error() string {
	return fmt.Sprintf("the BBS answered with the status %d: %s", e.Code, e.Body)
}
