"""The ways to use Metier: command line, terminal picker, JSON-RPC, MCP, HTTP and the web app.

A surface only translates: it calls the library and decides nothing.
"""
