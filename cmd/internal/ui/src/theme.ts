// Runs before the page is drawn, so that a selected theme doesn't flash.
const chosen = localStorage.getItem('cassia.theme');
if (chosen === 'light' || chosen === 'dark') document.documentElement.dataset.theme = chosen;
