// Package retention decides how long rows are kept: which class a series is in, how long the processes of a store are configured to keep each class,
// and which list of classes a day has.
//
//	flags of this process ─┐
//	flags of the others ───┴─► longest ─► Keeper.Keep: retention of a tenant's class
//
//	labels ─► list of classes of the day ─► class of a series
package retention
