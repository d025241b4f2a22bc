// Runs before anything is drawn, so that a chosen theme doesn't flash.
const chosen = localStorage.getItem('cassia.theme');
if (chosen === 'light' || chosen === 'dark') document.documentElement.dataset.theme = chosen;
