"""Finds the places of the sources where a mutant can be made, with libclang: by the syntax tree, so
that an operator is one and no part of a type, a comment or a macro.
"""
import dataclasses
import json
import pathlib
import re
import shlex
import sys

import operators

try:
    from clang import cindex
except ImportError:  # another python3 than Debian's, for which python3-clang-14 is
    sys.path.append("/usr/lib/python3/dist-packages")
    from clang import cindex

Kind = cindex.CursorKind

FUNCTIONS = {Kind.FUNCTION_DECL, Kind.CXX_METHOD, Kind.CONSTRUCTOR, Kind.DESTRUCTOR,
             Kind.CONVERSION_FUNCTION, Kind.FUNCTION_TEMPLATE}
REFERENCES = {Kind.DECL_REF_EXPR, Kind.TYPE_REF, Kind.TEMPLATE_REF, Kind.OVERLOADED_DECL_REF,
              Kind.NAMESPACE_REF}
# Below these everything is known when the program is compiled.
CONSTANT = {Kind.STATIC_ASSERT, Kind.ENUM_DECL, Kind.PARM_DECL, Kind.TYPE_ALIAS_DECL,
            Kind.TYPE_ALIAS_TEMPLATE_DECL, Kind.TYPEDEF_DECL, Kind.TEMPLATE_NON_TYPE_PARAMETER,
            Kind.TEMPLATE_TYPE_PARAMETER, Kind.CXX_BASE_SPECIFIER}
BODIES = {Kind.COMPOUND_STMT, Kind.CASE_STMT, Kind.DEFAULT_STMT}
LOOPS = {Kind.FOR_STMT, Kind.WHILE_STMT, Kind.CXX_FOR_RANGE_STMT}
NUMBER = re.compile(r"(0x[0-9A-Fa-f]+|\d+)[uUlL]*$|\d+\.\d*(e[-+]?\d+)?[fF]?$")
CONSTANT_NAME = re.compile(r"k[A-Z]\w*$")
CALLEE = re.compile(r"((?:\w+::)*\w+)(<[^()]*>)?\(")


@dataclasses.dataclass(frozen=True, order=True)
class Mutant:
    """The bytes [begin, end) of a file, an expression, and what stands there instead. An empty
    replacement is for a statement, which is left out."""

    file: str
    begin: int
    end: int
    replacement: str
    rule: str
    is_constexpr: bool = False  # in a function that is also evaluated at compile time


class Source:
    """The text of a file."""

    def __init__(self, root, file):
        self.file = file
        self.text = (root / file).read_text("ascii")

    def of(self, cursor):
        return self.text[cursor.extent.start.offset:cursor.extent.end.offset]

    def between(self, a, b):
        return self.text[a.extent.end.offset:b.extent.start.offset].strip()


def is_expression(text):
    """Whether a text can be one: false where a macro tore its extent apart."""
    if "\\\n" in text:
        return False  # in the definition of a macro
    depth = 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if depth < 0:
            return False
    return depth == 0 and bool(text.strip())


def is_template_argument(text, begin, end):
    """clang-format puts a space around comparisons and none around template arguments."""
    before = text[:begin].rstrip(" ")
    return (len(before) == begin and before.endswith("<")) or text[end:end + 1] == ">"


def is_initialiser(child, declaration, source):
    """Whether a child of a declaration is no part of its type."""
    begin = child.extent.start.offset
    return begin > declaration.location.offset and source.text[begin - 1] != "["


def is_compile_time(cursor, source):
    """Whether nothing below a cursor can differ from run to run."""
    if cursor.kind in CONSTANT:
        return True
    return cursor.kind == Kind.VAR_DECL and "constexpr" in source.of(cursor).split("=")[0]


def exchangeable_members(cursor, name):
    """The members that may stand for the one that a cursor refers to, `name`."""
    others = operators.MEMBERS.get(name, ())
    member = cursor.referenced
    if not others or member is None or not member.semantic_parent:
        return others  # depends on a template's parameter
    siblings = {sibling.spelling: sibling.type.get_canonical().spelling
                for sibling in member.semantic_parent.get_children()}
    return [other for other in others
            if other in siblings and siblings[other] == siblings.get(name)]


def operands(cursor):
    """The two operands of a binary operator, also of one that is a function, or None."""
    children = list(cursor.get_children())
    if cursor.kind in (Kind.BINARY_OPERATOR, Kind.COMPOUND_ASSIGNMENT_OPERATOR):
        return children if len(children) == 2 else None
    if cursor.kind == Kind.CALL_EXPR and len(children) == 3:  # two and the operator's name
        return [children[0], children[2]]
    return None


class Finder:
    """Collects the mutants of one translation unit's files below a folder of the sources."""

    def __init__(self, root, is_wanted):
        self.root = root
        self.is_wanted = is_wanted
        self.sources = {}
        self.mutants = set()
        self.is_constexpr = False

    def source_of(self, cursor):
        """The Source that a cursor lies in, or None where it is not wanted."""
        file = cursor.location.file
        name = file.name if file else ""
        if name not in self.sources:
            path = pathlib.Path(name).resolve()
            known = name and path.is_relative_to(self.root)
            relative = path.relative_to(self.root).as_posix() if known else ""
            self.sources[name] = Source(self.root, relative) if self.is_wanted(relative) else None
        return self.sources[name]

    def add(self, source, begin, end, replacement, rule):
        original = source.text[begin:end]
        if is_expression(original) and not is_template_argument(source.text, begin, end):
            self.mutants.add(
                Mutant(source.file, begin, end, replacement, rule, self.is_constexpr))

    def replace(self, source, cursor, replacement, rule):
        self.add(source, cursor.extent.start.offset, cursor.extent.end.offset, replacement, rule)

    def find(self, cursor):
        """Mutants of the declarations below a cursor, the translation unit first of all."""
        for child in cursor.get_children():
            source = self.source_of(child)
            if source is not None:
                self.visit(child, cursor, source)

    def visit(self, cursor, parent, source):
        if is_compile_time(cursor, source):
            return
        outer = self.is_constexpr
        if cursor.kind in FUNCTIONS:
            head = source.of(cursor).split("{")[0]
            self.is_constexpr = re.search(r"\bconstexpr\b", head) is not None
        self.mutate(cursor, parent, source)
        for child in self.varying_children(cursor, source):
            self.visit(child, cursor, source)
        self.is_constexpr = outer

    @staticmethod
    def varying_children(cursor, source):
        """Without conditions and labels that are constants, and without template arguments."""
        children = list(cursor.get_children())
        if cursor.kind in REFERENCES:
            return []
        if cursor.kind in (Kind.VAR_DECL, Kind.FIELD_DECL):
            return [child for child in children if is_initialiser(child, cursor, source)]
        if cursor.kind == Kind.MEMBER_REF_EXPR or cursor.kind == Kind.CASE_STMT:
            return children[:1] if cursor.kind == Kind.MEMBER_REF_EXPR else children[1:]
        if cursor.kind == Kind.IF_STMT and source.of(cursor).startswith("if constexpr"):
            return children[1:]
        return children

    def mutate(self, cursor, parent, source):
        self.mutate_operator(cursor, source)
        self.mutate_prefix(cursor, source)
        self.mutate_constant(cursor, source)
        self.mutate_name(cursor, parent, source)
        self.mutate_call(cursor, source)
        self.force_condition(cursor, source)
        self.remove_statement(cursor, parent, source)

    def mutate_operator(self, cursor, source):
        pair = operands(cursor)
        if pair is None:
            return
        a, b = pair
        operator = source.between(a, b)
        if cursor.kind == Kind.CALL_EXPR and operator not in operators.COMPARISONS:
            return  # what a class does for one operator, it need not do for another
        for other in operators.OPERATORS.get(operator, ()):
            self.replace(source, cursor, f"{source.of(a)} {other} {source.of(b)}", "operator")

    def mutate_prefix(self, cursor, source):
        text = source.of(cursor)
        if cursor.kind == Kind.UNARY_OPERATOR and text.startswith(operators.DROPPED_PREFIXES) \
                and not text.startswith("--"):
            self.replace(source, cursor, text[1:], "negation" if text[0] == "!" else "prefix")

    def mutate_constant(self, cursor, source):
        text = source.of(cursor)
        if cursor.kind == Kind.CXX_BOOL_LITERAL_EXPR and text in ("true", "false"):
            self.replace(source, cursor, "false" if text == "true" else "true", "constant")
        elif cursor.kind in (Kind.INTEGER_LITERAL, Kind.FLOATING_LITERAL) and NUMBER.match(text):
            self.replace(source, cursor, f"{text} + 1", "constant")
            self.replace(source, cursor, f"{text} - 1", "constant")
        elif cursor.kind == Kind.DECL_REF_EXPR and CONSTANT_NAME.search(text) and \
                cursor.type.get_canonical().kind in (
                    cindex.TypeKind.INT, cindex.TypeKind.LONG, cindex.TypeKind.FLOAT):
            self.replace(source, cursor, f"{text} + 1", "constant")

    def mutate_name(self, cursor, parent, source):
        text = source.of(cursor)
        if cursor.kind == Kind.DECL_REF_EXPR:
            for other in operators.ENUMERATORS.get(text.removeprefix("kernels::"), ()):
                self.replace(source, cursor, other, "enumerator")
        elif cursor.kind == Kind.MEMBER_REF_EXPR:
            whole = parent if source.of(parent).startswith(f"{text}(") else cursor
            head, name = re.match(r"(.*?)(\w*)$", text, re.DOTALL).groups()
            for other in exchangeable_members(cursor, name):
                rest = source.of(whole)[len(text):]
                self.replace(source, whole, f"{head}{other}{rest}", "member")

    def mutate_call(self, cursor, source):
        if cursor.kind not in (Kind.CALL_EXPR, Kind.CONDITIONAL_OPERATOR):
            return
        text = source.of(cursor)
        callee = CALLEE.match(text)
        if callee is None or not text.endswith(")"):
            return
        rest = text[callee.end(1):]
        for other in operators.CALLS.get(callee[1], ()):
            self.replace(source, cursor, other + rest, "call")
        if callee[1] in operators.DROPPED_CALLS:
            self.replace(source, cursor, rest, "call")

    def force_condition(self, cursor, source):
        if cursor.kind not in (Kind.IF_STMT, Kind.CONDITIONAL_OPERATOR):
            return
        condition = next(cursor.get_children())
        is_constant = source.of(cursor).startswith("if constexpr")
        is_in_macro = condition.extent == cursor.extent
        if not is_constant and not is_in_macro and condition.kind != Kind.DECL_STMT:
            for value in ("true", "false"):
                if source.of(condition) != value:
                    self.replace(source, condition, value, "condition")

    def remove_statement(self, cursor, parent, source):
        is_statement = parent.kind in BODIES or (
            parent.kind in LOOPS | {Kind.IF_STMT} and source.text[
                cursor.extent.end.offset:].startswith(";") and
            source.text[:cursor.extent.start.offset].rstrip().endswith((")", "else")))
        text = source.of(cursor)
        if not is_statement or not is_expression(text) or text.startswith("return"):
            return
        pair = operands(cursor)
        is_assignment = pair is not None and source.between(*pair).endswith("=")
        if is_assignment or (cursor.kind in (Kind.CALL_EXPR, Kind.UNEXPOSED_EXPR) and
                             text.endswith(")")):
            self.replace(source, cursor, "", "statement")


def commands_of(build, copy, root):
    """(file, arguments for libclang) of each compilation of the library in a build of `copy`, as if
    it were of `root`."""
    for entry in json.loads((build / "compile_commands.json").read_text()):
        file = pathlib.Path(entry["file"])
        if not file.is_relative_to(copy / "src"):
            continue
        words = shlex.split(entry["command"].replace(str(copy), str(root)))
        words = words[next(i for i, word in enumerate(words) if word.startswith("-")):]
        yield str(root / file.relative_to(copy)), words[:words.index("-o")]


def find_in_unit(root, folders, file, arguments):
    """The mutants of one translation unit in files below `folders`."""
    unit = cindex.Index.create().parse(file, arguments)
    errors = [str(d) for d in unit.diagnostics if d.severity >= cindex.Diagnostic.Error]
    if errors:
        raise RuntimeError(f"{file} does not parse: {errors[0]}")
    finder = Finder(root, lambda name: any(name.startswith(f"{f}/") for f in folders))
    finder.find(unit.cursor)
    return finder.mutants


def find(root, folders, build, copy):
    """All mutants below `folders`, sorted."""
    mutants = set()
    for file, arguments in commands_of(build, copy, root):
        mutants |= find_in_unit(root, folders, file, arguments)
    return sorted(mutants)
