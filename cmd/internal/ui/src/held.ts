import { useEffect, useRef, useState } from 'preact/hooks';

/**
 * useHeld is a value as it was when the mouse button went down, until it is released; a handler of mousedown tells when it goes down.
 * A graph that is made anew for an answer would end a selection.
 */
export function useHeld<T>(value: T): [T, (e: MouseEvent) => void] {
  const [down, setDown] = useState(false);
  const held = useRef(value);
  if (!down) held.current = value;
  const release = useRef<() => void>();
  useEffect(() => () => release.current?.(), []);
  const press = (e: MouseEvent) => {
    if (e.button !== 0 || release.current) return;
    // A button that is released over a menu of the browser's or another window isn't reported.
    const moved = (e: MouseEvent) => e.buttons & 1 || up();
    const up = () => {
      release.current = undefined;
      window.removeEventListener('mouseup', up);
      window.removeEventListener('mousemove', moved);
      setDown(false);
    };
    release.current = up;
    // At once: a touch presses and releases before anything is drawn.
    window.addEventListener('mouseup', up);
    window.addEventListener('mousemove', moved);
    setDown(true);
  };
  return [held.current, press];
}
