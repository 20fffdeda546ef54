// The reader of texts: CSV and its kin, JSON lines.
#include "client/reducectl/input/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/reducectl/input/number_column.h"
#include "tests/support/text_source.h"

namespace reduced::client {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// The columns of a text: each as "NAME DTYPE: ELEMENTS", with spaces between them.
absl::StatusOr<std::vector<std::string>> Columns(const std::string& text, const InputOptions& options = {},
                                                 std::vector<std::string>* notes = nullptr) {
  auto reader = TextReader::Open(std::make_shared<TextSource>(text), options, LooksLikeJson(text));
  if (!reader.ok()) return reader.status();
  const auto more = (*reader)->Read(std::numeric_limits<std::size_t>::max());
  if (!more.ok()) return more.status();
  std::vector<std::string> columns;
  if (notes != nullptr) *notes = (*reader)->notes();
  for (TextReader::Column& column : (*reader)->columns()) {
    if (!column.status.ok()) columns.emplace_back(column.status.message());
    if (column.left_out()) continue;
    if (notes != nullptr) {
      for (const std::string& note : (*reader)->notes(column)) notes->push_back(note);
    }
    const std::string dtype = column.numbers.dtype();
    std::string shown = absl::StrCat(column.name, " ", dtype, ":");
    std::vector<std::uint64_t> missing;
    const Memory memory = column.numbers.Take(/*zeros=*/false, &missing);
    const absl::string_view bytes = memory.bytes();
    const std::size_t width = static_cast<std::size_t>(*DTypeBytes(dtype));
    for (std::size_t at = 0; at < bytes.size(); at += width) {
      double f64 = 0;
      float f32 = 0;
      std::int64_t integer = 0;
      std::memcpy(dtype == "f64"   ? static_cast<void*>(&f64)
                  : dtype == "f32" ? static_cast<void*>(&f32)
                                   : &integer,
                  bytes.data() + at, width);
      absl::StrAppend(&shown, " ",
                      dtype == "f64"   ? absl::StrCat(f64)
                      : dtype == "f32" ? absl::StrCat(f32)
                                       : absl::StrCat(integer));
    }
    if (!missing.empty()) absl::StrAppend(&shown, " without ", absl::StrJoin(missing, ","));
    columns.push_back(shown);
  }
  return columns;
}

std::string ColumnsText(const std::string& text, const InputOptions& options = {}) {
  const auto columns = Columns(text, options);
  return columns.ok() ? absl::StrJoin(*columns, "; ") : std::string(columns.status().message());
}

TEST(Text, ReadsColumnsByNameOrIndex) {
  const std::string text = "date,co2\n1958,316.1\n1959,\n1960,NaN\n1961, +3e2 \n";
  EXPECT_EQ(ColumnsText(text, {.columns = {"co2"}}), "co2 f64: 316.1 nan nan 300");
  EXPECT_EQ(ColumnsText(text, {.columns = {"1"}}), "co2 f64: 316.1 nan nan 300");
  EXPECT_EQ(ColumnsText(text, {.columns = {"date"}}), "date i64: 1958 1959 1960 1961");
  EXPECT_EQ(ColumnsText(text, {.columns = {"co2", "0"}}), "co2 f64: 316.1 nan nan 300; date i64: 1958 1959 1960 1961");
  EXPECT_EQ(ColumnsText("a,b\n1,2\n", {.columns = {"all"}}), "a i64: 1; b i64: 2");
}

TEST(Text, LeavesOutColumnsOfTextOnlyIfAllAreAskedFor) {
  std::vector<std::string> notes;
  const std::string text = "name,n\nada,1\nbob,2\n";
  EXPECT_EQ(absl::StrJoin(*Columns(text, {.all_columns = true}, &notes), "; "), "n i64: 1 2");
  EXPECT_THAT(notes, ElementsAre("column \"name\" isn't numbers, and is left out: line 2 has \"ada\""));
  EXPECT_THAT(ColumnsText(text, {.columns = {"name"}}), HasSubstr("line 2: column \"name\": got \"ada\""));
  EXPECT_THAT(ColumnsText("x,y\n1,2\nb,3\n", {.all_columns = true}),
              AllOf(HasSubstr("line 3: column \"x\": got \"b\""), HasSubstr("; y i64: 2 3")));
  EXPECT_THAT(
      ColumnsText("x,y\n-,1\n1,2\n2,3\n", {.all_columns = true}),
      AllOf(StartsWith("line 2: column \"x\": got \"-\"; allowed: numbers, as line 3 has"), HasSubstr("y i64: 1 2 3")));
  EXPECT_EQ(absl::StrJoin(*Columns("id,n\nA1,1\n17,2\nB2,3\n", {.all_columns = true}, &notes), "; "), "n i64: 1 2 3");
  EXPECT_THAT(notes,
              ElementsAre("column \"id\" isn't numbers, and is left out: line 2 has \"A1\", though 1 others are"));
  EXPECT_EQ(ColumnsText("x\na\n", {.columns = {"all"}}), "no column has numbers");
}

TEST(Text, FindsOutAboutTheHeader) {
  EXPECT_EQ(ColumnsText("x\n1\n2\n"), "x i64: 1 2");
  EXPECT_EQ(ColumnsText("1\n2\n"), "0 i64: 1 2");
  EXPECT_EQ(ColumnsText("x\n"), "x f64:");
  EXPECT_EQ(ColumnsText(",x\n7,1.5\n", {.columns = {"x"}}), "x f64: 1.5");
  // Data.
  EXPECT_EQ(ColumnsText("1,-2\n3,4\n", {.columns = {"1"}}), "1 i64: -2 4");
  EXPECT_EQ(ColumnsText("3,3\n3,4\n", {.columns = {"1"}}), "1 i64: 3 4");
  EXPECT_EQ(ColumnsText("2019.5,2020.5\n1,2\n", {.columns = {"0"}}), "0 f64: 2019.5 1");
  EXPECT_EQ(ColumnsText("True,False\nTrue,True\n", {.columns = {"0"}}), "0 bool: 1 1");
  // The name of a column that is asked for.
  EXPECT_EQ(ColumnsText("2019,2020\n1.5,2.5\n", {.columns = {"2020"}}), "2020 f64: 2.5");
  EXPECT_EQ(ColumnsText("country,2019,2020\nDE,1,2\n", {.columns = {"2020"}}), "2020 i64: 2");
  EXPECT_EQ(ColumnsText("a,7\nb,2\n", {.columns = {"7"}}), "7 i64: 2");
}

// What can be either is an error, which names --header; and that is obeyed.
TEST(Text, AsksWhetherTheFirstRowIsAHeader) {
  EXPECT_EQ(
      ColumnsText("a,7\nb,2\n", {.columns = {"1"}}),
      "line 1: header: got both text and numbers (a, 7); add --header yes if they are the names of columns, so that "
      "the data begin with line 2 (b, 2), or --header no if they are data");
  EXPECT_EQ(ColumnsText("a,7\nb,2\n", {.columns = {"1"}, .header = Header::kNo}), "1 i64: 7 2");
  EXPECT_EQ(ColumnsText("a,7\nb,2\n", {.columns = {"1"}, .header = Header::kYes}), "7 i64: 2");
  EXPECT_EQ(
      ColumnsText("0 1 2\n", {.columns = {"all"}}),
      "line 1: header: got different whole numbers only (0, 1, 2); add --header yes if they are the names of columns, "
      "so that there are no data, or --header no if they are data");
  EXPECT_EQ(ColumnsText("0 1 2\n", {.columns = {"all"}, .header = Header::kNo}), "0 i64: 0; 1 i64: 1; 2 i64: 2");
  for (const std::string row : {"0,1", "1,2", "7,3", "1990,2000", "2020,2019", ",0", "country,2019"}) {
    for (const std::string below : {"1,2", "1.5,2.5", "DE,1"}) {
      const std::string text = absl::StrCat(row, "\n", below, "\n");
      EXPECT_THAT(ColumnsText(text, {.columns = {"all"}}),
                  AllOf(StartsWith("line 1: header: got "), HasSubstr(row.back() + std::string(")")),
                        HasSubstr(absl::StrCat("line 2 (", absl::StrReplaceAll(below, {{",", ", "}}), ")"))))
          << text;
    }
  }
  for (const std::string row : {"ada,null", "ada,"}) {
    EXPECT_THAT(ColumnsText(row + "\nbob,1,3\n", {.columns = {"all"}}),
                StartsWith("line 1: header: got both text and missing values ("))
        << row;
  }
  // Text above a number is a name: as data it would be a bad number.
  EXPECT_EQ(ColumnsText("ada,,bob\nbob,1,3\n", {.columns = {"all"}}), " i64: 1; bob i64: 3");
  for (const std::string doubtful :
       {"1e999", "0x10", "-1e999", "$5", "2%", "2020-01-01", "1,5", "-", ".", "****", "\\N", "1.#IND"}) {
    EXPECT_THAT(ColumnsText(doubtful + "\n2\n3\n", {.delimiter = ';'}),
                StartsWith(absl::StrCat("line 1: header: got \"", absl::CHexEscape(doubtful),
                                        "\", which can be a bad number")));
    EXPECT_THAT(ColumnsText("a;" + doubtful + "\n2;3\n", {.columns = {"0"}, .delimiter = ';'}),
                StartsWith("line 1: header: got "));
  }
}

TEST(Text, SkipsCommentsOnlyWhereTheyAreSaid) {
  std::vector<std::string> notes;
  const auto text = [&](const std::string& rows, const InputOptions& options) {
    notes.clear();
    const auto columns = Columns(rows, options, &notes);
    return columns.ok() ? absl::StrJoin(*columns, "; ") : std::string(columns.status().message());
  };
  EXPECT_EQ(text("tag,n\n#a,1\n#b,2\nc,3\n", {.columns = {"n"}}), "n i64: 1 2 3");
  EXPECT_THAT(notes, IsEmpty());
  EXPECT_EQ(text("#id,x\n1,2\n", {.columns = {"x"}}), "x i64: 2");
  EXPECT_EQ(text("#a,1\n#b,2\n", {.columns = {"1"}, .header = Header::kNo}), "1 i64: 1 2");
  EXPECT_THAT(text("v\n#DIV/0!\n1\n", {}), HasSubstr("line 2: column \"v\": got \"#DIV/0!\""));
  EXPECT_EQ(text("#N/A\n1.5\n", {}), "0 f64: nan 1.5");
  EXPECT_EQ(text("# by hand\n\n#\nid,n\n1,2\n", {.columns = {"n"}}), "n i64: 2");
  EXPECT_THAT(notes, ElementsAre("2 lines are skipped as comments, the first is line 1 (# by hand)"));
  EXPECT_EQ(text("% a\n1,2.5\n%3,4\n5,6\n", {.columns = {"1"}, .comment = "%"}), "1 f64: 2.5 6");
  EXPECT_THAT(notes, ElementsAre("2 lines are skipped as comments, the first is line 1 (% a)"));
  EXPECT_THAT(text("v\n1\n//2\n", {}), HasSubstr("line 3: "));
  EXPECT_EQ(text("v\n1\n//2\n3", {.comment = "//"}), "v i64: 1 3");
  EXPECT_EQ(text("v\n1\n \n\n3\n\n", {}), "v i64: 1 3");
  EXPECT_THAT(notes, ElementsAre("blank lines between the rows are skipped: 2, the first is line 3"));
}

TEST(Text, ReadsRowsThatAreNotLikeTheirHeader) {
  std::vector<std::string> notes;
  const std::string ends = "A,B,C\n1,4,7,\n2,5,8,\n3,6,9,";
  EXPECT_EQ(absl::StrJoin(*Columns(ends, {.columns = {"B"}}, &notes), "; "), "B i64: 4 5 6");
  EXPECT_THAT(notes, ElementsAre("the delimiter at the end of each row is ignored"));
  EXPECT_EQ(ColumnsText("A,B,\n1,2,\n", {.all_columns = true}), "A i64: 1; B i64: 2");
  EXPECT_EQ(ColumnsText("A,B,\n1,2,\n3,4,5\n", {.all_columns = true}), "A i64: 1 3; B i64: 2 4;  i64: 5 without 0");
  EXPECT_EQ(ColumnsText("A,B,\n1,2\n", {.all_columns = true}), "A i64: 1; B i64: 2");
  EXPECT_EQ(ColumnsText("1.5,2,\n3,4,\n", {.all_columns = true}), "0 f64: 1.5 3; 1 i64: 2 4");
  EXPECT_EQ(ColumnsText("1,\n2,\n"), "0 i64: 1 2");
  EXPECT_EQ(ColumnsText("x,\n2,\n"), "x i64: 2");
  EXPECT_THAT(ColumnsText("A,B\n1,2,\n3,4,5\n", {.columns = {"A"}}),
              HasSubstr("line 3: got \"5\" after the delimiter"));
  EXPECT_THAT(ColumnsText("A,B\n1,2,\n3,4\n", {.columns = {"A"}}), HasSubstr("line 3: got 2 fields; allowed: 3"));

  EXPECT_EQ(absl::StrJoin(*Columns("\"x\" \"y\"\n\"1\" 1.5 2\n\"2\" 2.5 NA\n", {.all_columns = true}, &notes), "; "),
            "x f64: 1.5 2.5; y i64: 2 without 1");
  EXPECT_THAT(notes, ElementsAre(StartsWith("line 1, the header, has one field fewer than the rows")));
  EXPECT_EQ(ColumnsText("\"x\"\n\"1\" 5\n\"2\" 6\n"), "x i64: 5 6");
  EXPECT_EQ(ColumnsText("x\ty\n1\t5\t6\n", {.columns = {"y"}}), "y i64: 6");
  EXPECT_EQ(ColumnsText("x,y\nada,5,6\n", {.columns = {"y"}}), "y i64: 6");
  EXPECT_THAT(ColumnsText("x\n1,5\n2,5\n"),
              AllOf(HasSubstr("line 2: got 2 fields; allowed: 1"), HasSubstr("--decimal , reads it as 1.5"),
                    HasSubstr("--delimiter ,")));
  EXPECT_EQ(ColumnsText("x\n1,5\n2,5\n", {.delimiter = ','}), "x i64: 5 5");
  EXPECT_EQ(ColumnsText("x\n1,5\n2,5\n", {.comma = Comma::kDecimal}), "x f64: 1.5 2.5");
  EXPECT_THAT(ColumnsText("x\n1 500\n2 500\n"), HasSubstr("if \"1 500\" is one number"));
  EXPECT_THAT(ColumnsText("a,b\n1,2\n", {.comma = Comma::kDecimal}),
              HasSubstr("header: got \"a,b\", with --decimal ,"));
  EXPECT_THAT(ColumnsText("2019 2020\nDE 1 2\n", {.columns = {"all"}}),
              HasSubstr("header: got different whole numbers only"));
}

TEST(Text, ReadsLinesThatEndWithCr) {
  EXPECT_EQ(ColumnsText("a,b\r1,2\r3,4\r", {.columns = {"b"}}), "b i64: 2 4");
  EXPECT_EQ(ColumnsText("a\r1\r\r2"), "a i64: 1 2");
  EXPECT_EQ(ColumnsText("a\r1\r2\n"),
            "line 1: got a carriage return within a line; allowed: lines that all end with LF, CR LF or CR");
  EXPECT_THAT(ColumnsText("a\n1\r2\n3\n"), HasSubstr("got \"1\\r2\""));
}

TEST(Text, ReadsGroupsOfDigits) {
  const auto value = [](const std::string& number, Comma comma) {
    return ColumnsText("k;v\na;" + number + "\n", {.columns = {"v"}, .comma = comma});
  };
  for (const std::string space : {" ", "'", "\u00a0", "\u202f", "\u2009", "\u2019"}) {
    EXPECT_EQ(value(absl::StrCat("1", space, "234", space, "567,5"), Comma::kDecimal), "v f64: 1.23457e+06");
    EXPECT_EQ(value(absl::StrCat("-12", space, "345"), Comma::kDecimal), "v i64: -12345");
    EXPECT_EQ(value(absl::StrCat("+12", space, "345"), Comma::kThousands), "v i64: 12345");
    EXPECT_THAT(value(absl::StrCat("12", space, "345"), Comma::kDefault),
                HasSubstr("--decimal , reads it as 12345, --decimal . reads it as 12345"));
    EXPECT_THAT(value(absl::StrCat("1", space, "23"), Comma::kDecimal), HasSubstr("allowed: "));
    EXPECT_THAT(value(absl::StrCat("1", space, "234.567"), Comma::kDecimal), HasSubstr("allowed: "));
  }
  EXPECT_EQ(value("1.234", Comma::kDecimal), "v i64: 1234");
  EXPECT_EQ(value("1.234,5", Comma::kDecimal), "v f64: 1234.5");
  EXPECT_EQ(value("1,5e3", Comma::kDecimal), "v f64: 1500");
  EXPECT_EQ(value(",5", Comma::kDecimal), "v f64: 0.5");
  EXPECT_EQ(value("1,234.5", Comma::kThousands), "v f64: 1234.5");
  EXPECT_EQ(value("1.500", Comma::kThousands), "v f64: 1.5");
  for (const std::string bad : {"1.5", "1.23", "0.123", "1234.567", ".500", "1.234.56", "1.234,5,6", "1.234e3",
                                "1,2.345", "1.2e3", "1.000.0000"}) {
    EXPECT_THAT(value(bad, Comma::kDecimal), HasSubstr(absl::StrCat("got \"", bad, "\"; allowed: "))) << bad;
  }
  EXPECT_THAT(value("1.5", Comma::kDecimal), HasSubstr("--decimal . reads it as 1.5"));
  // Of all columns, one whose numbers are written otherwise is no text.
  EXPECT_THAT(
      ColumnsText("k;v;w\na;1,5;1\nb;2,5;2\n", {.all_columns = true}),
      AllOf(HasSubstr("column \"v\": got \"1,5\""), HasSubstr("--decimal , reads it as 1.5"), HasSubstr("w i64: 1 2")));
  EXPECT_EQ(ColumnsText("k;v;w\na;1,5;1\nb;Mr, X;2\n", {.all_columns = true}), "w i64: 1 2");
  EXPECT_THAT(ColumnsText("k;v;w\na;-;1\nb;1,5;2\n", {.all_columns = true}),
              HasSubstr("line 3: column \"v\": got \"1,5\""));
  std::vector<std::string> notes;
  for (const auto& [rows, said] :
       {std::pair{"a;1.234\nb;2.500\n", true}, {"a;1.234\nb;2.5\n", false}, {"a;0.123\n", false}}) {
    ASSERT_TRUE(Columns(absl::StrCat("k;v\n", rows), {.columns = {"v"}}, &notes).ok());
    EXPECT_EQ(notes.empty(), !said) << rows;
  }
  EXPECT_EQ(Columns("k,v\na,1\na,\"1,234\"\n", {.columns = {"v"}}, &notes)->front(), "v i64: 1 1234");
  EXPECT_THAT(notes, ElementsAre(StartsWith("column \"v\": commas separate thousands, first in line 3;")));
}

TEST(Text, KnowsMissingValues) {
  const auto value = [](const std::string& field, const std::vector<std::string>& words,
                        const std::string& dtype = "") {
    return ColumnsText("v,w\n1,0\n" + field + ",0\n3,0\n", {.dtype = dtype, .columns = {"v"}, .missing_words = words});
  };
  for (const std::string word : {"", "NA", "NaN", "-nan", "-nan(ind)", "null", "<NA>"}) {
    EXPECT_EQ(value(word, {}), "v i64: 1 3 without 1") << word;
    EXPECT_EQ(value(word, {}, "i64"), "v i64: 1 3 without 1") << word;
  }
  for (const std::string word : {"-", ".", "\\N", "****", "-1.#IND", "1.#QNAN", "n.a.", "-9999", "1e999"}) {
    EXPECT_THAT(value(word, {}), AnyOf(HasSubstr("--missing names it"), "v i64: 1 -9999 3"));
    EXPECT_EQ(value(word, {"?", word}), "v i64: 1 3 without 1");
    EXPECT_EQ(value(word, {word}, "i64"), "v i64: 1 3 without 1");
    EXPECT_EQ(value(word, {word}, "f64"), "v f64: 1 nan 3");
  }
  for (const std::string word : {"-9999", "-9999.0", "-9.999e3", " -9999 "}) {
    EXPECT_EQ(value(word, {"-9999"}), "v i64: 1 3 without 1");
    EXPECT_EQ(value(word, {"-9999.00"}), "v i64: 1 3 without 1");
    EXPECT_EQ(value(word, {"-9999"}, "i32"),
              word == "-9.999e3" ? value(word, {"-9999"}, "i32") : "v i32: 1 3 without 1");
    EXPECT_EQ(ColumnsText("v\n1.5\n" + word + "\n", {.missing_words = {"-9999"}}), "v f64: 1.5 nan");
  }
  EXPECT_EQ(value("9223372036854775807", {"9223372036854775807"}), "v i64: 1 3 without 1");
  EXPECT_EQ(value("9223372036854775806", {"9223372036854775807"}), "v i64: 1 9223372036854775806 3");
  EXPECT_EQ(
      ColumnsText("v;w\n1;0\n-9.999;0\n", {.columns = {"v"}, .comma = Comma::kDecimal, .missing_words = {"-9999"}}),
      "v i64: 1 without 1");
}

TEST(Text, ReadsJsonLines) {
  const std::string text =
      "{\"a\": 1, \"b\": \"x\"}\n\n{\"c\":2.5,\"a\":9007199254740993}\r\n{ \"b\" : null, \"a\": null }";
  EXPECT_EQ(ColumnsText(text, {.all_columns = true}), "a i64: 1 9007199254740993 without 2; c f64: nan 2.5 nan");
  EXPECT_EQ(ColumnsText(text, {.columns = {"c"}}), "c f64: nan 2.5 nan");
  EXPECT_EQ(ColumnsText(text, {.columns = {"c", "a"}}), "c f64: nan 2.5 nan; a i64: 1 9007199254740993 without 2");
  EXPECT_THAT(ColumnsText(text, {.columns = {"b"}}), HasSubstr("line 1: column \"b\": got \"\\\"x\\\"\""));
  EXPECT_EQ(ColumnsText(text, {.columns = {"z"}}), "column: got \"z\"; allowed: a, b, c");
  EXPECT_THAT(ColumnsText(text), HasSubstr("got 2 columns (a, b); choose"));
  EXPECT_EQ(ColumnsText("{\"a\": NaN}\n{\"a\": -Infinity}\n{}\n{\"a\":\"NaN\"}\n"), "a f64: nan -inf nan nan");
  EXPECT_EQ(ColumnsText("{\"a\\u00e9\\\"\": true}\n"), "a\u00e9\" bool: 1");
  EXPECT_EQ(ColumnsText("{\"o\": {\"x\": [1, \"}\"]}, \"a\": [[1]], \"n\": 4}\n", {.all_columns = true}), "n i64: 4");
  for (const std::string bad :
       {"{\"a\": 1", "{\"a\" 1}", "{\"a\": }", "{\"a\": 1} x", "{\"a\": \"x}", "{\"a\": [1}", "{\"a\":1 \"b\":2}",
        "{\"a\":1,}", "{\"a\":1,\"a\":2}", "{\"a\":1}{\"a\":2}", "[1]", "{"}) {
    EXPECT_THAT(ColumnsText("{\"a\": 1}\n" + bad + "\n"), StartsWith("line 2: bad JSON: got ")) << bad;
  }
}

TEST(Text, FindsTheDelimiter) {
  EXPECT_EQ(ColumnsText("a;b\n1,5;2\n", {.columns = {"b"}}), "b i64: 2");
  EXPECT_EQ(ColumnsText("a;b\n1,5;2\n", {.columns = {"a"}, .comma = Comma::kDecimal}), "a f64: 1.5");
  EXPECT_EQ(ColumnsText("1,5\n2,5\n", {.comma = Comma::kDecimal}), "0 f64: 1.5 2.5");
  EXPECT_EQ(ColumnsText("a;b\n1,500;2\n", {.columns = {"a"}, .comma = Comma::kThousands}), "a i64: 1500");
  for (const std::string no_thousands : {"1234,567", "1,50", "1,5000", ",500", "1,500,00", "1,500.5,000"}) {
    EXPECT_THAT(ColumnsText("a;b\n" + no_thousands + ";2\n", {.columns = {"a"}, .comma = Comma::kThousands}),
                HasSubstr("got \"" + no_thousands + "\"; allowed: "));
  }
  EXPECT_THAT(ColumnsText("a;b\n1,5;2\n", {.columns = {"a"}}),
              HasSubstr("got \"1,5\"; allowed: numbers in the range of f64; --decimal , reads it as 1.5"));
  EXPECT_THAT(ColumnsText("a;b\n1,500;2\n", {.columns = {"a"}}), HasSubstr("--decimal . reads it as 1500"));
  EXPECT_EQ(ColumnsText("a\tb\n1\t2\n", {.columns = {"b"}}), "b i64: 2");
  EXPECT_EQ(ColumnsText("a|b\n1|2\n", {.columns = {"b"}}), "b i64: 2");
  EXPECT_EQ(ColumnsText("  1.5   2\n 3\t 4  \n", {.columns = {"1"}}), "1 i64: 2 4");
  EXPECT_EQ(ColumnsText("sepal length\n1\n2\n"), "sepal length i64: 1 2");
  EXPECT_EQ(ColumnsText("\"x; y\",b\n1,2\n", {.columns = {"b"}}), "b i64: 2");
  EXPECT_EQ(ColumnsText("a:b\n1:2\n", {.columns = {"b"}, .delimiter = ':'}), "b i64: 2");
}

TEST(Text, FindsTheType) {
  EXPECT_EQ(ColumnsText("9007199254740993\n-9223372036854775808\n9223372036854775807\n"),
            "0 i64: 9007199254740993 -9223372036854775808 9223372036854775807");
  EXPECT_EQ(ColumnsText("1\n2.5\n3\n"), "0 f64: 1 2.5 3");
  EXPECT_EQ(ColumnsText("1.5\n2\n\"\"\n3\n"), "0 f64: 1.5 2 nan 3");
  EXPECT_EQ(ColumnsText("\"\"\n2\n1.5\nNA"), "0 f64: nan 2 1.5 nan");
  EXPECT_EQ(ColumnsText("1\nNA\n2\n"), "0 i64: 1 2 without 1");
  EXPECT_EQ(ColumnsText("x\nNA\n2\n"), "x i64: 2 without 0");
  EXPECT_EQ(ColumnsText("x\nNA\nnull\n"), "x f64: nan nan");
  EXPECT_EQ(ColumnsText("True\nFALSE\n"), "0 bool: 1 0");
  EXPECT_EQ(ColumnsText("True\nnull\nFALSE\n"), "0 bool: 1 0 without 1");
  std::vector<std::string> notes;
  EXPECT_EQ(Columns("x\nTrue\nnull\n3\n", {}, &notes)->front(), "x i64: 1 3 without 1");
  EXPECT_THAT(notes, ElementsAre("column \"x\": True counts as 1, False as 0, first in line 2"));
  EXPECT_EQ(ColumnsText("x\nTrue\n0.5\nnull\nFalse\n"), "x f64: 1 0.5 nan 0");
  EXPECT_EQ(ColumnsText("18446744073709551615\n", {.dtype = "u64"}), "0 u64: -1");  // as its bits are shown here
  EXPECT_EQ(ColumnsText("9223372036854775808\n", {.dtype = "f64"}), "0 f64: 9.22337e+18");
  EXPECT_EQ(ColumnsText("x\n1\nTrue\n0.1\n", {.dtype = "f32"}), "x f32: 1 1 0.1");
  EXPECT_EQ(ColumnsText("1\n-3\n", {.dtype = "i16"}), "0 i16: 1 65533");
  for (const auto& [text, dtype] :
       {std::pair{"300", "u8"}, {"-1", "u8"}, {"1.5", "i32"}, {"1e39", "f32"}, {"2", "bool"}, {"7e4", "f16"}}) {
    EXPECT_THAT(ColumnsText(absl::StrCat("x\n", text), {.dtype = dtype}),
                HasSubstr(absl::StrCat("numbers that ", dtype, " can hold")))
        << text;
  }
}

// Whole numbers are exact, or an error names the rows that contradict each other.
TEST(Text, WholeNumbersAreExactBesideOthers) {
  EXPECT_EQ(ColumnsText("x\n1\n18446744073709551615\n"), "x u64: 1 -1");  // as its bits are shown here
  EXPECT_EQ(ColumnsText("x\nNA\n9223372036854775808\n7\n"), "x u64: -9223372036854775808 7 without 0");
  EXPECT_EQ(ColumnsText("x\n-1\n9223372036854775808\n"),
            "line 3: column \"x\": got \"9223372036854775808\"; allowed: whole numbers below 2^63, as line 2 has -1; "
            "to round "
            "such numbers, add --dtype f64; if it stands for no value, --missing names it");
  EXPECT_THAT(
      ColumnsText("x\n9223372036854775808\n-1\n"),
      HasSubstr(
          "line 3: column \"x\": got \"-1\"; allowed: whole numbers from 0 on, as line 2 has 9223372036854775808"));
  EXPECT_THAT(ColumnsText("x\n18446744073709551616\n"), HasSubstr("allowed: whole numbers from -2^63 to 2^64 - 1"));
  EXPECT_EQ(ColumnsText("x\n9007199254740993\n1e3\nNA\n-2.0\n"), "x i64: 9007199254740993 1000 -2 without 2");
  EXPECT_EQ(ColumnsText("x\n1e3\nNA\n-2.0\n9007199254740993\n"), "x i64: 1000 -2 9007199254740993 without 1");
  EXPECT_EQ(ColumnsText("x\n1e3\n18446744073709551615\n"), "x u64: 1000 -1");
  EXPECT_EQ(ColumnsText("x\n0.5\n9007199254740992\n9007199254740994\n1152921504606846976\n"),
            "x f64: 0.5 9.0072e+15 9.0072e+15 1.15292e+18");
  for (const std::string large : {"9007199254740993", "-9007199254740993", "9223372036854775807",
                                  "18446744073709551615", "1152921504606846977"}) {
    EXPECT_THAT(ColumnsText("x\n" + large + "\nNA\n0.5\n"),
                HasSubstr("line 4: column \"x\": got \"0.5\"; allowed: whole numbers, as line 2 has " + large));
    EXPECT_THAT(ColumnsText("x\n0.5\n" + large + "\n"),
                HasSubstr("line 3: column \"x\": got \"" + large +
                          "\"; allowed: numbers that f64 can hold, as line 2 has 0.5"));
    EXPECT_THAT(ColumnsText("x\n1e300\n" + large + "\n"), HasSubstr("line 3: "));
    EXPECT_THAT(ColumnsText("x\n" + large + "\n0.5\n", {.dtype = "f64"}), StartsWith("x f64: "));
  }
  EXPECT_EQ(ColumnsText("x\n1.0\n\"\"\n3.\n", {.dtype = "i64"}), "x i64: 1 3 without 1");
}

// Decimals are the nearest f64, however they are written and however many digits they have.
TEST(Text, DecimalsAreTheNearestF64) {
  std::vector<std::string> texts = {"0.0",
                                    "-0.0",
                                    "0.1",
                                    "-0.3",
                                    "1.",
                                    ".5",
                                    "00.10",
                                    "9007199254740993.0",
                                    "9007199254740992.5",
                                    "900719925474.0993",
                                    "0.000000000000000001",
                                    "0.9007199254740993",
                                    "123456789012345678.0",
                                    "1234567890.12345678",
                                    "0.12345678901234567890",
                                    "179769313486231570000.5",
                                    "1.5e3",
                                    "2.5E-3"};
  std::mt19937_64 generator(16);
  for (int i = 0; i < 20'000; ++i) {
    std::string digits = absl::StrCat(generator() >> generator() % 60);
    const std::size_t point = generator() % (digits.size() + 1);
    texts.push_back(absl::StrCat(generator() % 2 == 0 ? "-" : "", point == 0 ? "0" : digits.substr(0, point), ".",
                                 digits.substr(point), "0"));
  }
  NumberColumn column("", {}, {});
  for (const std::string& text : texts) ASSERT_EQ(column.Append(text, 1), nullptr) << text;
  ASSERT_EQ(column.dtype(), "f64");
  std::vector<std::uint64_t> missing;
  const Memory memory = column.Take(/*zeros=*/false, &missing);
  ASSERT_EQ(memory.bytes().size(), texts.size() * sizeof(double));
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const double expected = std::strtod(texts[i].c_str(), nullptr);
    double number = 0;
    std::memcpy(&number, memory.bytes().data() + i * sizeof(double), sizeof(double));
    EXPECT_EQ(std::bit_cast<std::uint64_t>(number), std::bit_cast<std::uint64_t>(expected)) << texts[i];
  }
}

TEST(Text, TakesWhatPeopleWrite) {
  EXPECT_EQ(ColumnsText("\xEF\xBB\xBF\"a, b\",c\r\n\"1\",2\r\n\r\n3,4", {.columns = {"a, b"}}), "a, b i64: 1 3");
  EXPECT_EQ(ColumnsText("inf\n-Infinity\n1e-3\n1e-400\n"), "0 f64: inf -inf 0.001 0");
  EXPECT_EQ(ColumnsText("n,m\n\"1,234\",1\n\"-12,345,678.5\",2\n", {.columns = {"n"}}), "n f64: 1234 -1.23457e+07");
  EXPECT_THAT(ColumnsText("n,m\n\"1,23\",1\n", {.columns = {"n"}}), HasSubstr("got \"1,23\""));
  EXPECT_EQ(ColumnsText("# a comment, with commas\nx\n1\n#N/A\n2.5\n"), "x f64: 1 nan 2.5");
  EXPECT_EQ(ColumnsText("x,y\nNA,1\nN/A,1\nnull,1\nNone,1\n,1\n", {.columns = {"x"}}), "x f64: nan nan nan nan nan");
  EXPECT_EQ(ColumnsText("x,y\n\"two\nlines\",1\n\"5\"\" pipe\",2\n6\" pipe,3\n", {.columns = {"y"}}), "y i64: 1 2 3");
}

std::string Repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

TEST(Text, SaysWhatIsWrong) {
  EXPECT_EQ(ColumnsText("date,co2\n1958,316\n\n1959,many\n", {.columns = {"co2"}}),
            "line 4: column \"co2\": got \"many\"; allowed: numbers in the range of f64; if it stands for no value, "
            "--missing "
            "names it");
  EXPECT_THAT(ColumnsText("a,b\n\"x\ny\",1\n3,4x\n", {.columns = {"b"}}),
              StartsWith("line 4: column \"b\": got \"4x\""));
  EXPECT_THAT(ColumnsText("x\n1e999\n"), HasSubstr("line 2: column \"x\": got \"1e999\""));
  EXPECT_EQ(ColumnsText("a,b\n1\n", {.columns = {"b"}}), "line 2: got 1 fields; allowed: 2, as line 1 has");
  EXPECT_EQ(ColumnsText("a,b\n1,2\n3,4,5\n", {.columns = {"a"}}), "line 3: got 3 fields; allowed: 2, as line 1 has");
  EXPECT_EQ(ColumnsText("a,b\n1,2\n", {.columns = {"c"}}), "line 1: column: got \"c\"; allowed: a, b, or 0 to 1");
  EXPECT_EQ(ColumnsText("a,b\n1,2\n", {.columns = {"2"}}), "line 1: column: got \"2\"; allowed: a, b, or 0 to 1");
  EXPECT_EQ(ColumnsText("a,a\n1,2\n", {.columns = {"a"}}),
            "line 1: column: got \"a\", which several columns are called; allowed: 0 to 1");
  EXPECT_EQ(ColumnsText("a,b\n1,2\n"), "line 1: got 2 columns (a, b); choose with --column, or --column all");
  const std::string many = absl::StrCat("a\x1b[2J", std::string(10'000, 'b'), Repeated(",c", 100'000), "\n1\n");
  EXPECT_LT(ColumnsText(many).size(), 2000U);
  EXPECT_LT(ColumnsText(many, {.columns = {"d"}}).size(), 2000U);
  EXPECT_THAT(ColumnsText(many, {.columns = {"d"}}), HasSubstr("c, ..., or 0 to 100000"));
  EXPECT_EQ(ColumnsText("a\n\"1\n2\n"), "line 2: bad CSV: a quoted field isn't closed");
  EXPECT_EQ(ColumnsText("a\n\"1\"2\n"), "line 2: bad CSV: text follows a quoted field");
  EXPECT_EQ(ColumnsText(""), "got an empty text; allowed: at least one row");
  EXPECT_EQ(ColumnsText("\n\n"), "got an empty text; allowed: at least one row");
  EXPECT_THAT(ColumnsText(std::string("\xff\xfe"
                                      "1\0\n\0",
                                      6)),
              HasSubstr("got UTF-16; allowed: UTF-8"));
  EXPECT_THAT(ColumnsText(std::string("1\n2\0003\n", 6)), HasSubstr("isn't text: it has a NUL byte"));
}

// Rows that end beyond the reader's buffer, wherever its pieces end.
TEST(Text, ReadsLongTexts) {
  std::string text = "a,b,c\n";
  std::int64_t sum = 0;
  for (std::int64_t i = 0; i < 400'000; ++i) {
    absl::StrAppend(&text, i, i % 7 == 0 ? ",\"a \"\"quoted\"\" one, with a comma\"," : ",text,", i * i % 1000, "\n");
    sum += i * i % 1000;
  }
  auto reader = *TextReader::Open(std::make_shared<TextSource>(text), {.columns = {"a", "c"}});
  std::int64_t got = 0, rows = 0;
  for (bool more = true; more;) {
    more = *reader->Read(10'000);
    rows += static_cast<std::int64_t>(reader->columns()[0].numbers.count());
    for (TextReader::Column& column : reader->columns()) {
      std::vector<std::uint64_t> missing;
      const Memory memory = column.numbers.Take(/*zeros=*/false, &missing);
      std::vector<std::int64_t> numbers(memory.bytes().size() / 8);
      if (!numbers.empty()) std::memcpy(numbers.data(), memory.bytes().data(), memory.bytes().size());
      for (const std::int64_t number : numbers) got += column.name == "c" ? number : 0;
    }
  }
  EXPECT_EQ(rows, 400'000);
  EXPECT_EQ(got, sum);
}

TEST(Text, DifferentTextsTakeBoundedMemory) {
  std::string text = "few,many,n\n";
  for (int i = 0; i < 1000; ++i) absl::StrAppend(&text, i % 3 == 0 ? "a" : "b", ",id_", i, "x,", i, "\n");
  InputOptions options;
  options.all_columns = options.texts = true;
  for (const bool bounded : {false, true}) {
    if (bounded) options.most_word_bytes = 20'000;
    auto reader = TextReader::Open(std::make_shared<TextSource>(text), options);
    ASSERT_TRUE(reader.ok()) << reader.status();
    ASSERT_TRUE((*reader)->Read(std::numeric_limits<std::size_t>::max()).ok());
    const TextReader::Column& few = (*reader)->columns()[0];
    const TextReader::Column& many = (*reader)->columns()[1];
    const Words of_few = (*reader)->WordsOf(few), of_many = (*reader)->WordsOf(many);
    EXPECT_TRUE(of_few.known);
    EXPECT_EQ(of_few.distinct, 2);
    EXPECT_EQ(of_few.most_frequent, "b");
    EXPECT_EQ(of_few.frequency, 666);
    EXPECT_EQ(of_many.known, !bounded);
    EXPECT_EQ(of_many.count, 1000);
    EXPECT_EQ(of_many.missing, 0);
    if (bounded) {
      EXPECT_TRUE(many.words.empty());
      EXPECT_THAT((*reader)->notes(many), ElementsAre(HasSubstr("how many different texts there are")));
    } else {
      EXPECT_EQ(of_many.distinct, 1000);
      EXPECT_THAT((*reader)->notes(many), IsEmpty());
    }
  }
}

}  // namespace
}  // namespace reduced::client
