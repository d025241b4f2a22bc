package tenant

import "context"

// Identity is who sent a request.
type Identity struct {
	// Name is the user's.
	Name string
	// Admin: the user may see and change what belongs to any tenant.
	Admin bool
}

type identityKey struct{}

// WithIdentity returns a context that carries who sent a request.
func WithIdentity(ctx context.Context, who Identity) context.Context {
	return context.WithValue(ctx, identityKey{}, who)
}

// IdentityOf returns who sent a request; false: nobody asked who it is.
func IdentityOf(ctx context.Context) (Identity, bool) {
	who, ok := ctx.Value(identityKey{}).(Identity)
	return who, ok
}
