// The icons of the page.

export function Logo() {
  return (
    <svg class="logo" viewBox="0 0 32 32" aria-hidden="true">
      <path class="logo-deep" d="M5 22.5c4.5 4 17.5 4 22 0" />
      <path class="logo-mid" d="M5 16c4.5 4 17.5 4 22 0" />
      <ellipse class="logo-top" cx="16" cy="9.5" rx="11" ry="4.6" />
    </svg>
  );
}

export const Caret = () => (
  <svg class="caret" viewBox="0 0 10 6" aria-hidden="true"><path d="M1 1l4 4 4-4" /></svg>
);

export const ClockIcon = () => (
  <svg class="clock" viewBox="0 0 16 16" aria-hidden="true"><circle cx="8" cy="8" r="6.2" /><path d="M8 4.6V8l2.3 1.6" /></svg>
);
