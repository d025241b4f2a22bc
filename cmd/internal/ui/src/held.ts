import { useEffect, useRef, useState } from 'preact/hooks';

/**
 * useHeld returns a value that stays unchanged while the mouse button is pressed. The returned handler must handle
 * mousedown. Otherwise a graph that is recreated for a response would end the selection.
 */
export function useHeld<T>(value: T): [T, (e: MouseEvent) => void] {
  const [down, setDown] = useState(false);
  const held = useRef(value);
  if (!down) held.current = value;
  const release = useRef<() => void>();
  useEffect(() => () => release.current?.(), []);
  const press = (e: MouseEvent) => {
    if (e.button !== 0 || release.current) return;
    // No mouseup event arrives if the button is released over a menu of the browser or over another window.
    const moved = (e: MouseEvent) => e.buttons & 1 || up();
    const up = () => {
      release.current = undefined;
      window.removeEventListener('mouseup', up);
      window.removeEventListener('mousemove', moved);
      setDown(false);
    };
    release.current = up;
    // Add the listeners immediately, because a touch presses and releases before the next rendering.
    window.addEventListener('mouseup', up);
    window.addEventListener('mousemove', moved);
    setDown(true);
  };
  return [held.current, press];
}
