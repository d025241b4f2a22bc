import { useEffect, useRef, useState } from 'preact/hooks';

/**
 * useHeld is a value as it was when the mouse button went down, until it is released; a handler of mousedown tells when it goes down.
 * A graph that is made anew for an answer would end a selection.
 */
export function useHeld<T>(value: T): [T, (e: MouseEvent) => void] {
  const [down, setDown] = useState(false);
  const held = useRef(value);
  if (!down) held.current = value;
  useEffect(() => {
    if (!down) return;
    const release = () => setDown(false);
    // A button that is released over a menu of the browser's or another window isn't reported.
    const moved = (e: MouseEvent) => e.buttons & 1 || release();
    window.addEventListener('mouseup', release);
    window.addEventListener('mousemove', moved);
    return () => {
      window.removeEventListener('mouseup', release);
      window.removeEventListener('mousemove', moved);
    };
  }, [down]);
  return [held.current, (e) => e.button === 0 && setDown(true)];
}
