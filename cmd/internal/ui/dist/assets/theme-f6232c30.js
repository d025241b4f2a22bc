"use strict";(()=>{var e=localStorage.getItem("cassia.theme");(e==="light"||e==="dark")&&(document.documentElement.dataset.theme=e);})();
