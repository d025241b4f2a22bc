// The PromQL editor.
import { autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap, type CompletionContext } from '@codemirror/autocomplete';
import { defaultKeymap, history, historyKeymap, insertNewlineAndIndent } from '@codemirror/commands';
import { bracketMatching, indentOnInput, syntaxHighlighting } from '@codemirror/language';
import { lintKeymap } from '@codemirror/lint';
import { Compartment, EditorState, Prec } from '@codemirror/state';
import { EditorView, keymap, placeholder } from '@codemirror/view';
import { tagHighlighter, tags } from '@lezer/highlight';
import { newCompleteStrategy, PromQLExtension } from '@prometheus-io/codemirror-promql';
import { useEffect, useRef } from 'preact/hooks';
import type { Completion } from './promclient';

// The content security policy allows CodeMirror's style sheets if they have this nonce, which is new in each response.
const nonce = document.querySelector<HTMLScriptElement>('script[nonce]')?.nonce ?? '';

// The colours are defined in style.css, for both themes.
const highlighter = tagHighlighter([
  { tag: tags.number, class: 'tok-number' },
  { tag: tags.string, class: 'tok-string' },
  { tag: [tags.keyword, tags.operatorKeyword, tags.modifier], class: 'tok-keyword' },
  { tag: [tags.function(tags.variableName), tags.function(tags.name)], class: 'tok-function' },
  { tag: tags.labelName, class: 'tok-label' },
  { tag: [tags.operator, tags.compareOperator, tags.arithmeticOperator], class: 'tok-operator' },
  { tag: tags.comment, class: 'tok-comment' },
  { tag: tags.invalid, class: 'tok-invalid' },
]);

const theme = EditorView.theme({
  '&': { color: 'var(--text)', backgroundColor: 'transparent', fontSize: '0.875rem' },
  '&.cm-focused': { outline: 'none' },
  '.cm-content': { fontFamily: 'var(--mono)', padding: '0.55rem 0', caretColor: 'var(--text)' },
  '.cm-line': { padding: '0 0.7rem' },
  '.cm-placeholder': { color: 'var(--faint)' },
  '&.cm-focused .cm-matchingBracket': { backgroundColor: 'var(--select)' },
  '&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground': { backgroundColor: 'var(--select)' },
  '.cm-tooltip': {
    color: 'var(--text)', backgroundColor: 'var(--panel)', border: '1px solid var(--line)', borderRadius: '8px',
    boxShadow: 'var(--shadow)', maxWidth: 'calc(100vw - 1.5rem)',
  },
  '.cm-tooltip.cm-tooltip-autocomplete > ul': { fontFamily: 'var(--mono)', fontSize: '0.8125rem', maxHeight: '16rem', minWidth: '0', maxWidth: 'calc(100vw - 1.5rem)' },
  '.cm-tooltip.cm-tooltip-autocomplete > ul > li': { padding: '0.2rem 0.6rem' },
  '.cm-tooltip-autocomplete ul li[aria-selected]': { backgroundColor: 'var(--accent-soft)', color: 'var(--text)' },
  '.cm-completionDetail': { color: 'var(--muted)', fontStyle: 'normal', marginLeft: '0.8em' },
  '.cm-completionMatchedText': { textDecoration: 'none', fontWeight: '600', color: 'var(--accent)' },
  '.cm-completionInfo': { fontFamily: 'var(--sans)', fontSize: '0.8125rem', padding: '0.5rem 0.7rem', maxWidth: '22rem' },
  '.cm-diagnostic-error': { borderLeftColor: 'var(--bad)' },
});

// When selected text is overwritten, Chromium keeps its style as an inline style, which the content security policy
// forbids. The editor therefore replaces the selection itself.
const typedOver = EditorView.domEventHandlers({
  beforeinput(e, view) {
    const { from, to, empty } = view.state.selection.main;
    const text = e.data;
    if (empty || e.inputType !== 'insertText' || text === null) return false;
    e.preventDefault();
    const insert = () => view.state.update(view.state.replaceSelection(text), { userEvent: 'input.type', scrollIntoView: true });
    if (!view.state.facet(EditorView.inputHandler).some((handle) => handle(view, from, to, text, insert))) view.dispatch(insert());
    return true;
  },
});

/**
 * accepted offers the completions of Prometheus' editor, without the functions and operators that this server rejects.
 */
function accepted(completion: Completion) {
  const all = newCompleteStrategy({ remote: completion });
  return {
    promQL: async (context: CompletionContext) => {
      const [found, refuses] = await Promise.all([all.promQL(context), completion.refuses()]);
      return found && { ...found, options: found.options.filter((o) => !refuses(o.label)) };
    },
    destroy: () => all.destroy?.(),
  };
}

interface Props {
  /** value is the initial text. It replaces the text in the editor only when edition changes. */
  value: string;
  edition: number;
  label: string;
  completion: Completion;
  onChange: (text: string) => void;
  onRun: () => void;
}

export function Editor(props: Props) {
  const at = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView>();
  const latest = useRef(props);
  latest.current = props;
  const language = useRef(new Compartment());

  useEffect(() => {
    const run = () => {
      latest.current.onRun();
      return true;
    };
    view.current = new EditorView({
      parent: at.current!,
      state: EditorState.create({
        doc: props.value,
        extensions: [
          EditorView.cspNonce.of(nonce),
          history(), indentOnInput(), bracketMatching(), closeBrackets(), EditorView.lineWrapping,
          autocompletion({ icons: false, maxRenderedOptions: 200 }),
          syntaxHighlighting(highlighter), theme, typedOver,
          placeholder('PromQL, for example  sum by (job) (rate(http_requests_total[5m]))'),
          Prec.highest(keymap.of([{ key: 'Mod-Enter', run }, { key: 'Shift-Enter', run: insertNewlineAndIndent }])),
          // An open list of completions handles Enter first.
          keymap.of([...completionKeymap, ...closeBracketsKeymap, { key: 'Enter', run }, ...defaultKeymap, ...historyKeymap, ...lintKeymap]),
          EditorView.contentAttributes.of({ 'aria-label': props.label, spellcheck: 'false', autocapitalize: 'off' }),
          EditorView.updateListener.of((u) => {
            if (u.docChanged) latest.current.onChange(u.state.doc.toString());
          }),
          language.current.of([]),
        ],
      }),
    });
    return () => view.current!.destroy();
  }, []);

  useEffect(() => {
    const promql = new PromQLExtension().setComplete({ completeStrategy: accepted(props.completion) });
    view.current!.dispatch({ effects: language.current.reconfigure(promql.asExtension()) });
    return () => promql.destroy();
  }, [props.completion]);

  useEffect(() => {
    const v = view.current!;
    if (v.state.doc.toString() !== props.value) {
      v.dispatch({ changes: { from: 0, to: v.state.doc.length, insert: props.value } });
    }
  }, [props.edition]);

  return <div class="editor" ref={at} />;
}
