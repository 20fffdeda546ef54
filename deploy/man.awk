# From the --help of a program, or of one of its commands, to a part of its man page (man(7) macros).
#
#   awk -v command=NAMES -f man.awk < HELP
#
# command: the command's names, separated by blanks; empty: the help is the program's own.
#
# What --help may have: a line "Usage: ...", paragraphs that are not indented, headings ("Options:"), and under a heading
# items: a term after at most two blanks, then, after two blanks or on the next lines, its meaning.

function escape(text) {
  gsub(/\\/, "\\e", text)
  gsub(/-/, "\\-", text)
  gsub(/'/, "\\(aq", text)
  gsub(/`/, "\\(ga", text)
  sub(/^\./, "\\\\\\&.", text)
  return text
}

# The options of a term are bold, up to their values.
function bold(term,    end) {
  end = match(term, /[ =]/) ? RSTART : length(term) + 1
  return "\\fB" escape(substr(term, 1, end - 1)) "\\fR" escape(substr(term, end))
}

function flush() {
  if (term != "" && !(command != "" && term ~ /^-h,--help/)) {
    print ".TP"
    print bold(term)
    print meaning == "" ? "\\&" : escape(meaning)
  } else if (term == "" && meaning != "") {
    if (command == "" && !described) print ".SH DESCRIPTION"
    else print ".PP"
    described = 1
    print escape(meaning)
  }
  term = meaning = ""
}

function heading(text) {
  flush()
  skipped = command != "" && text == "Exit codes"  # those of the program
  if (command != "") return
  if (text ~ /^Flags/) text = "Options"
  if (text ~ /^(Subc|C)ommands/) text = "Commands"
  if (text ~ /^Exit/) text = "Exit status"
  print ".SH " toupper(text)
  described = 1
}

/^Usage: / { flush(); next }
/^[A-Z][^:]*:$/ { heading(substr($0, 1, length($0) - 1)); inside = 1; next }
/^$/ { flush(); inside = 0; skipped = 0; next }
skipped { next }
/^ ? ?[^ ]/ && (inside && /^  [^ ]/ || /^ *[0-9]+  /) {
  flush()
  sub(/^ +/, "")
  split_at = match($0, /  +/)
  term = split_at ? substr($0, 1, RSTART - 1) : $0
  meaning = split_at ? substr($0, RSTART + RLENGTH) : ""
  next
}
/^ / { sub(/^ +/, ""); meaning = meaning (meaning == "" ? "" : " ") $0; next }
{  # a paragraph
  if (term != "") flush()
  meaning = meaning (meaning == "" ? "" : " ") $0
}
END { flush() }
