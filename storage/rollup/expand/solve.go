package expand

import (
	"math"
	"slices"
)

// point contains two sums over a course: of the levels before falls, and of all samples.
type point struct{ correction, sum float64 }

func (p point) minus(q point) point { return point{p.correction - q.correction, p.sum - q.sum} }

func (p point) dot(q point) float64 { return p.correction*q.correction + p.sum*q.sum }

// cross returns the cross product of p and q, which is positive if q is to the left of p.
func (p point) cross(q point) float64 { return p.correction*q.sum - p.sum*q.correction }

func (p point) length() float64 { return math.Hypot(p.correction, p.sum) }

// search is memory for solveTarget. Each slice contains the indices in knots of the levels of a course.
type search struct{ left, right, next, back []uint8 }

// target is the point that the levels of a course should add up to.
type target struct {
	point
	// slack is the max distance to the point.
	slack float64
	// anyCorrection is set if only the sum must match.
	anyCorrection bool
	// anySum is set if the sum is the sum of the even course.
	anySum bool
}

// strictly is a factor, slightly less than 1, that keeps levels different that would be equal at the edge of the
// polygon of solveTarget.
const strictly = 1 - 4e-15

// solveTarget changes the unknown levels so that they add up to the target, and reports whether that is possible.
//
// The courses with the rises and falls of c are a convex set. The points that they add up to therefore form a polygon;
// extremeCourse finds the polygon's corner in a direction. The straight line from the point of the even course to the
// target is called the way. solveTarget finds the edge at which the way leaves the polygon, between a corner to the
// left and a corner to the right of the way (Minkowski portal refinement, Snethen 2008). The solution is an
// interpolation between the levels of the even course, which all differ, and the levels at that edge.
//
//	    ·─────────right
//	   ╱           ╲
//	even─── target ─╳ edge
//	   ╲           ╱
//	    ·──────left
func (c *course) solveTarget(t target) bool {
	even := c.point()
	if t.anyCorrection || math.Abs(t.correction-even.correction) <= 4*t.slack {
		t.correction = even.correction
	}
	way := t.minus(even)
	length := way.length()
	if length <= t.slack {
		return true
	}
	way = point{way.correction / length, way.sum / length}
	p := portal{way: way, length: length, slack: t.slack}
	direction := way
	for range 40 {
		if t.anyCorrection {
			direction.correction = 0
		}
		corner, ok := c.extremeCourse(&c.work.next, direction)
		if !ok {
			return false
		}
		if corner = corner.minus(even); t.anyCorrection {
			corner.correction = 0
		}
		if length*way.dot(direction)-corner.dot(direction) > t.slack*direction.length() {
			return false // The target is farther in this direction than any course.
		}
		switch p.add(corner, direction) {
		case onWay:
			along := way.dot(corner)
			if along < length-t.slack {
				return false
			}
			c.blendLevels(c.work.next, nil, min(length/along, strictly), 0)
			return true
		case toLeft:
			c.work.left, c.work.next = c.work.next, c.work.left
		case toRight:
			c.work.right, c.work.next = c.work.next, c.work.right
		case atEdge:
			return c.setAtTarget(&p)
		}
		if p.isOpen() && p.isWellInside() {
			return c.setAtTarget(&p)
		}
		direction = p.direction()
	}
	return p.isOpen() && c.setAtTarget(&p)
}

// setAtTarget moves the unknown levels so that they add up to the target. It returns false if the target is beyond the
// edge.
func (c *course) setAtTarget(p *portal) bool {
	share, along := p.intersection()
	if !(p.length <= along+p.slack) {
		return false
	}
	c.blendLevels(c.work.left, c.work.right, min(p.length/along, strictly), share)
	return true
}

// blendLevels moves the unknown levels by the fraction by toward other levels. These are the knots of a or, if b isn't
// nil, an interpolation of the knots of a and b, with weight share for b.
func (c *course) blendLevels(a, b []uint8, by, share float64) {
	for j, v := range c.level {
		if c.known[j] >= 0 {
			continue
		}
		to := c.knots[a[j]]
		if b != nil {
			to = to*(1-share) + c.knots[b[j]]*share
		}
		c.level[j] = v + (to-v)*by
	}
}

// portal contains the corners to the left and to the right of the way (see solveTarget), relative to the even course.
type portal struct {
	way               point // of length 1
	length, slack     float64
	left, right       point
	hasLeft, hasRight bool
}

// side is the side of the way on which a new corner is.
type side int

const (
	onWay side = iota
	toLeft
	toRight
	atEdge // no corner is farther
)

// isOpen reports whether the way passes between two corners.
func (p *portal) isOpen() bool { return p.hasLeft && p.hasRight }

// add sets the left or right corner to a corner found in a direction.
func (p *portal) add(corner, direction point) side {
	at := p.way.cross(corner)
	switch {
	case math.Abs(at)*min(p.length, 1) <= 4*p.slack*corner.length():
		return onWay
	case p.isOpen() && corner.minus(p.left).dot(direction) <= 1e-9*direction.length():
		return atEdge
	case at > 0:
		p.left, p.hasLeft = corner, true
		return toLeft
	default:
		p.right, p.hasRight = corner, true
		return toRight
	}
}

// direction returns the direction of the next corner: beyond the edge between the two corners or, if there is only one
// corner, beyond the way as seen from that corner.
func (p *portal) direction() point {
	switch {
	case !p.hasRight:
		return point{p.left.sum, -p.left.correction}
	case !p.hasLeft:
		return point{-p.right.sum, p.right.correction}
	}
	edge := p.left.minus(p.right)
	return point{edge.sum, -edge.correction}
}

// intersection returns the intersection of the way and the edge: its share of the edge from left to right, and its
// distance along the way.
func (p *portal) intersection() (share, along float64) {
	l, r := p.way.cross(p.left), p.way.cross(p.right)
	share = l / (l - r)
	return share, p.way.dot(p.left)*(1-share) + p.way.dot(p.right)*share
}

// isWellInside reports whether the target is so far inside the edge that searching for a farther edge isn't worthwhile.
func (p *portal) isWellInside() bool {
	_, along := p.intersection()
	return p.length <= along*0.8
}

// point returns the sums of the levels.
func (c *course) point() (p point) {
	for j, v := range c.level {
		p.sum += v * float64(c.held[j])
		if c.isBeforeFall(j) {
			p.correction += v
		}
	}
	return p
}

// extremeCourse finds the course with the rises and falls of c whose levels are knots and whose point is farthest in a
// direction. It sets knots to the indices of the course's levels. ok is false if there is no such course; consecutive
// levels may be equal. It processes the levels in order and keeps the best course that ends at each knot.
func (c *course) extremeCourse(knots *[]uint8, direction point) (corner point, ok bool) {
	n, count := len(c.level), len(c.knots)
	c.work.back = slices.Grow(c.work.back[:0], n*maxKnots)[:n*maxKnots]
	*knots = slices.Grow((*knots)[:0], n)[:n]
	var best [maxKnots]float64
	for j := range n {
		weight := direction.sum * float64(c.held[j])
		if c.isBeforeFall(j) {
			weight += direction.correction
		}
		back := c.work.back[j*maxKnots:][:maxKnots]
		for k := range count {
			back[k] = uint8(k)
		}
		switch {
		case j == 0:
		case c.up[j-1]:
			for k := 1; k < count; k++ {
				if best[k-1] >= best[k] {
					best[k], back[k] = best[k-1], back[k-1]
				}
			}
		default:
			for k := count - 2; k >= 0; k-- {
				if best[k+1] >= best[k] {
					best[k], back[k] = best[k+1], back[k+1]
				}
			}
		}
		for k := range count {
			if c.known[j] >= 0 && int(c.known[j]) != k {
				best[k] = math.Inf(-1)
			} else {
				best[k] += weight * c.knots[k]
			}
		}
	}
	end := 0
	for k := 1; k < count; k++ {
		if best[k] > best[end] {
			end = k
		}
	}
	if math.IsInf(best[end], -1) {
		return corner, false
	}
	for j := n - 1; j >= 0; j-- {
		(*knots)[j] = uint8(end)
		corner.sum += c.knots[end] * float64(c.held[j])
		if c.isBeforeFall(j) {
			corner.correction += c.knots[end]
		}
		end = int(c.work.back[j*maxKnots+end])
	}
	return corner, true
}
