// Signs in with the code of a link. Browsers keep what is behind the # to themselves, and it leaves the address at once.

const code = location.hash.slice(1);
if (code) {
  history.replaceState(null, "", location.pathname + location.search);
  const form = document.forms[0];
  form.elements.code.value = code;
  form.submit();
}
