package bbs

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"strconv"
	"strings"
	"time"
)

const (
	contentType       = "application/x-protobuf"
	routerErrorHeader = "X-Cf-Routererror"
	traceHeader       = "X-Vcap-Request-Id"

	// version begins the path of every call.
	version = "/v1.2/"
	// largestErrorBody bounds, in bytes, what is kept of an answer that is not the API's.
	largestErrorBody = 4 << 10
)

// Defaults of [Config], and times of connections: those of Diego's client.
const (
	defaultAttempts      = 3
	defaultRetryInterval = 500 * time.Millisecond
	dialTimeout          = 5 * time.Second
	handshakeTimeout     = 10 * time.Second
	idleTimeout          = 90 * time.Second
)

// Config says where the BBS is and how calls are made. Only URL is required.
type Config struct {
	// URL of the BBS, such as https://bbs.service.cf.internal:8889.
	URL string
	// CAFile is the PEM file of the authorities that the certificate of the BBS is checked with; if empty, those of the
	// system.
	CAFile string
	// CertFile and KeyFile are the PEM files of the client's certificate and its key. A BBS of Diego requires them.
	CertFile, KeyFile string
	// Attempts is the number of times that a call is made at most. Default: 3.
	Attempts int
	// RetryInterval is the pause between two of them. Default: 500 ms.
	RetryInterval time.Duration
	// RequestTimeout bounds each of them, and the time until an event stream begins. Default: none but that of the context.
	RequestTimeout time.Duration
	// MaxIdleConnsPerHost is the number of connections that are kept while no call is made. Default: 2.
	MaxIdleConnsPerHost int
}

// Client makes the calls of one BBS. It may be used by several goroutines.
type Client struct {
	base   string
	config Config
	http   *http.Client
}

// New returns a client. It reads the files of the configuration, and does not connect.
func New(config Config) (*Client, error) {
	target, err := url.Parse(config.URL)
	if err != nil || (target.Scheme != "http" && target.Scheme != "https") || target.Host == "" {
		return nil, fmt.Errorf("the URL of the BBS is %q; it has to be https:// or http://, and an address", config.URL)
	}
	if target.Scheme == "http" && (config.CAFile != "" || config.CertFile != "" || config.KeyFile != "") {
		return nil, fmt.Errorf("the URL of the BBS is %q, and certificates are for https://", config.URL)
	}
	if config.Attempts <= 0 {
		config.Attempts = defaultAttempts
	}
	if config.RetryInterval <= 0 {
		config.RetryInterval = defaultRetryInterval
	}
	security, err := tlsConfig(config)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{
		DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSHandshakeTimeout: handshakeTimeout,
		IdleConnTimeout:     idleTimeout,
		MaxIdleConnsPerHost: config.MaxIdleConnsPerHost,
		TLSClientConfig:     security,
	}
	base := strings.TrimSuffix(config.URL, "/") + version
	return &Client{base: base, config: config, http: &http.Client{Transport: transport}}, nil
}

func tlsConfig(config Config) (*tls.Config, error) {
	security := &tls.Config{MinVersion: tls.VersionTLS12}
	if config.CAFile != "" {
		authorities, err := os.ReadFile(config.CAFile)
		if err != nil {
			return nil, fmt.Errorf("the file of authorities cannot be read: %w", err)
		}
		security.RootCAs = x509.NewCertPool()
		if !security.RootCAs.AppendCertsFromPEM(authorities) {
			return nil, fmt.Errorf("%s has no certificate in PEM", config.CAFile)
		}
	}
	if config.CertFile != "" || config.KeyFile != "" {
		certificate, err := tls.LoadX509KeyPair(config.CertFile, config.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("the client's certificate and key cannot be used: %w", err)
		}
		security.Certificates = []tls.Certificate{certificate}
	}
	return security, nil
}

type traceKey struct{}

// WithTraceID returns a context whose calls have an id of their request, as its header X-Vcap-Request-Id: it is in the log of
// the BBS, and in the events that the call causes.
func WithTraceID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, traceKey{}, id)
}

// Close closes the connections that no call uses. The client may be used afterwards.
func (c *Client) Close() {
	c.http.CloseIdleConnections()
}

// call makes a call, several times if necessary, and returns its error. A nil request has no body. The answer may have content
// beside an error.
func (c *Client) call(ctx context.Context, path string, request, response any) error {
	var body []byte
	if request != nil {
		body = encode(request)
	}
	err := c.attempt(ctx, func(ctx context.Context) error { return c.exchange(ctx, path, body, response) })
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if answered := reflect.ValueOf(response).Elem().FieldByName("Error"); answered.IsValid() && !answered.IsNil() {
		return answered.Interface().(*Error)
	}
	return nil
}

// attempt repeats an exchange until it succeeds, its error will not pass, or there were enough.
func (c *Client) attempt(ctx context.Context, exchange func(context.Context) error) error {
	for made := 1; ; made++ {
		err := exchange(ctx)
		if err == nil || ctx.Err() != nil || made == c.config.Attempts || !mayPass(err) {
			return err
		}
		pause := time.NewTimer(c.config.RetryInterval)
		select {
		case <-ctx.Done():
			pause.Stop()
			return ctx.Err()
		case <-pause.C:
		}
	}
}

// mayPass returns whether another attempt may succeed: not if the BBS has understood the request and rejects it.
func mayPass(err error) bool {
	var status *StatusError
	if errors.As(err, &status) {
		return status.Code >= http.StatusInternalServerError
	}
	var undecodable *decodeError
	return !errors.As(err, &undecodable)
}

// exchange sends a request once and reads its answer.
func (c *Client) exchange(ctx context.Context, path string, body []byte, response any) error {
	if c.config.RequestTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.config.RequestTimeout)
		defer cancel()
	}
	answer, err := c.send(ctx, path, body, contentType)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	// An attempt before may have been cut off within its answer.
	target := reflect.ValueOf(response).Elem()
	target.Set(reflect.Zero(target.Type()))
	return decode(content, response)
}

// send sends a request and returns its answer, if that has the content type. The caller closes its body.
func (c *Client) send(ctx context.Context, path string, body []byte, expected string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", contentType)
	if id, ok := ctx.Value(traceKey{}).(string); ok {
		request.Header.Set(traceHeader, id)
	}
	answer, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	if text := answer.Header.Get(routerErrorHeader); text != "" {
		answer.Body.Close()
		return nil, &Error{Type: ErrorTypeRouterError, Message: text}
	}
	if found, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type")); found != expected {
		defer answer.Body.Close()
		// The status is what matters; the text may be cut off.
		text, _ := io.ReadAll(io.LimitReader(answer.Body, largestErrorBody))
		return nil, &StatusError{answer.StatusCode, retryAfter(answer), strings.TrimSpace(string(text))}
	}
	return answer, nil
}

func retryAfter(answer *http.Response) time.Duration {
	seconds, err := strconv.ParseUint(answer.Header.Get("Retry-After"), 10, 31)
	if err != nil {
		return 0
	}
	return time.Duration(seconds) * time.Second
}
