\echo Use "CREATE EXTENSION memfold CASCADE" to load this file. \quit
-- Strings as the files mean them, whatever the database says.
set local standard_conforming_strings = on;
